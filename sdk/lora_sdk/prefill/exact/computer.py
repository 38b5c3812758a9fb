"""Prompts computed in torch with the boards' own bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lora_sdk.core.kv_arrays import KvArrays
from lora_sdk.model.quantization import kv_of
from lora_sdk.prefill.exact.adapter import Factors, factors_of
from lora_sdk.prefill.exact.kernels import Kernels, TorchKernels
from lora_sdk.prefill.exact.model import ExactModel, OnLayer
from lora_sdk.prefill.exact.state import LayerKv
from lora_sdk.prefill.job import Job, JobAdapter, Part

if TYPE_CHECKING:
    from lora_sdk.model.kv_formats import KvKind
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.prefill.exact.weights import Source

CHUNK = 256  # rows at once, whole pages: bounds memory, and between them a prompt may end
GROUP = 2  # layers that are handed over at once


class NotWantedError(Exception):
    """Nobody waits for the prompt any more."""


class ExactComputer:
    """A Computer (see job.py) on a torch device."""

    takes_adapters = True

    def __init__(
        self,
        config: ModelConfig,
        source: Source,
        context: int,
        device: torch.device,
        kernels: Kernels | None = None,
    ) -> None:
        """`config`, `source` and `context` are those of the boards. ModelError as for loading."""
        self._config = config
        self._kind = kv_of(config)
        self.context = context
        self._model = ExactModel(config, source, device, kernels or TorchKernels())
        self._adapter: tuple[bytes, dict[str, Factors]] = (b"", {})  # the latest
        self._closed = False

    def close(self) -> None:
        """See Computer. A prompt ends after its present layer."""
        self._closed = True

    def compute(self, job: Job, give: Callable[[Part], None]) -> None:
        """See Computer. A part is a group of layers of a chunk of positions."""
        prompt = self._model.prompt(job.tokens, self._factors(job.adapter))
        for start in range(0, len(job.tokens), CHUNK):
            stop = min(start + CHUNK, len(job.tokens))
            group = _Group(self._config.layers, self._kind.name, range(start, stop), give)

            def on_layer(layer: int, kv: LayerKv, add: OnLayer = group.add) -> None:
                if self._closed or not job.wanted():
                    raise NotWantedError
                add(layer, kv)

            try:
                job.logits = self._model.run(prompt, start, stop, on_layer)
            except NotWantedError:
                return

    def _factors(self, adapter: JobAdapter | None) -> dict[str, Factors]:
        if adapter is None:
            return {}
        if self._adapter[0] != adapter.digest:
            found = factors_of(adapter.weights, self._model.weights.to_device)
            self._adapter = (adapter.digest, found)
        return self._adapter[1]


class _Group:
    """Gives K and V of some positions, group by group of layers."""

    def __init__(
        self, layers: int, kind: KvKind, positions: range, give: Callable[[Part], None]
    ) -> None:
        self._layers, self._kind, self._positions = layers, kind, positions
        self._give = give
        self._found: list[LayerKv] = []

    def add(self, layer: int, kv: LayerKv) -> None:
        self._found.append(kv)
        if layer % GROUP == GROUP - 1 or layer == self._layers - 1:
            first = layer - layer % GROUP
            self._give(Part(first, self._positions.start, self._arrays()))
            self._found = []

    def _arrays(self) -> KvArrays:
        scales = [self._stacked("k_scales"), self._stacked("v_scales")]
        k, v = self._stacked("k"), self._stacked("v")
        assert k is not None and v is not None
        return KvArrays(self._kind, k, v, *scales)

    def _stacked(self, name: str) -> NDArray[Any] | None:
        """[layers, KV heads, positions, ..]; None where the layers have none."""
        chosen = slice(self._positions.start, self._positions.stop)
        each = [getattr(kv, name) for kv in self._found]
        if each[0] is None:
            return None
        return np.stack([one[:, chosen].cpu().numpy() for one in each])
