"""Prompts computed by transformers, in its own arithmetic: near the boards' values, not equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lora_host.errors import ModelError, RequestError
from lora_sdk.model.quantization import AttentionScales
from lora_sdk.prefill.job import Job, Part
from lora_sdk.prefill.near import NearParts

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

CHUNK = 512  # tokens at once, whole pages: between them a cancelled prompt ends


class TorchComputer:
    """A model of transformers. Adapters are not among its weights."""

    takes_adapters = False
    by_name = False
    at_once = 1

    def __init__(
        self, model: Any, config: ModelConfig, scales: Sequence[AttentionScales], context: int
    ) -> None:
        """`config`, static `scales` and `context` are those of the boards."""
        self._model = model
        self._config = config
        self._parts = NearParts(config, scales)
        self.context = context
        found = int(model.config.get_text_config().vocab_size)
        if found != config.vocabulary:
            raise RequestError(
                f"the prefill model has a vocabulary of {found} tokens, the model has "
                f"{config.vocabulary}; expected the same model"
            )

    def close(self) -> None:
        """See Computer. The model goes with its last reference."""

    def compute(self, job: Job, give: Callable[[Part], None]) -> None:
        """See Computer. A part is a group of layers of a chunk of positions, given while the next
        layers compute."""
        import torch

        ids = torch.tensor([list(job.tokens)], device=self._model.device)
        kept, logits = _watched_cache(), None
        for start in range(0, ids.shape[1], CHUNK):
            if not job.wanted():
                return
            chunk = ids[:, start : start + CHUNK]
            positions = range(start, start + chunk.shape[1])
            kept.on_layer = partial(self._note, kept, positions, give, [])
            with torch.inference_mode():
                logits = self._model(chunk, past_key_values=kept, use_cache=True).logits[0, -1]
        assert logits is not None  # a prompt has tokens
        job.logits = logits.float().cpu().numpy()

    def _note(
        self,
        kept: Any,
        positions: range,
        give: Callable[[Part], None],
        group: list[tuple[Any, Any]],
        layer: int,
    ) -> None:
        """K and V of `layer` are known: give its group if it is the last of it."""
        group.append(self._layer(kept.layers[layer], layer, positions))
        if self._parts.ends_group(layer):
            give(self._parts.part(layer, positions.start, group))
            group.clear()

    def _layer(self, kept: Any, layer: int, positions: range) -> tuple[Any, Any]:
        """FP32 [KV heads, positions, head_dim] of K and of V."""
        config = self._config
        expected = (1, config.kv_heads, positions.stop, config.head_dim)
        found = tuple(kept.keys.shape), tuple(kept.values.shape)
        if found != (expected, expected):
            raise ModelError(
                f"layer {layer}: transformers' K and V have shapes {found[0]} and {found[1]}; "
                f"expected {expected}"
            )
        k, v = (
            array[0, :, positions.start :].float().cpu().numpy()
            for array in (kept.keys, kept.values)
        )
        return k, v


def _watched_cache() -> Any:
    """A cache of transformers that calls `on_layer` with each layer's number, once the layer's K
    and V are in it."""
    from transformers import DynamicCache

    class Watched(DynamicCache):  # type: ignore[misc]
        on_layer: Callable[[int], None]

        def update(self, k: Any, v: Any, layer: int, *args: Any, **fields: Any) -> Any:
            found = super().update(k, v, layer, *args, **fields)
            self.on_layer(layer)
            return found

    return Watched()
