"""Prompts computed in torch with the boards' own bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from lora_prefill.exact.adapter import Factors, factors_of
from lora_prefill.exact.handover import Handover
from lora_prefill.exact.kernels import Kernels, TorchKernels
from lora_prefill.exact.model import ExactModel, OnLayer
from lora_prefill.exact.state import LayerKv, Notes
from lora_sdk.model.quantization import kv_of
from lora_sdk.prefill.job import Job, JobAdapter, Part

if TYPE_CHECKING:
    from lora_prefill.exact.weights import Source
    from lora_sdk.model.spec import ModelConfig

CHUNK = 256  # rows at once, whole pages: bounds memory, and between them a prompt may end
GPU_CHUNK = 512  # fills a card, so that the host's work for each row is less


class NotWantedError(Exception):
    """Nobody waits for the prompt any more."""


class ExactComputer:
    """A Computer (see job.py) on a torch device."""

    takes_adapters = True
    by_name = False
    at_once = 1

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
        device = prompt.tokens.device
        handover = Handover(self._config.layers, self._kind.name, device, give)
        chunk, last = GPU_CHUNK if device.type == "cuda" else CHUNK, None
        for start in range(0, len(job.tokens), chunk):
            stop = min(start + chunk, len(job.tokens))
            add = partial(handover.add, range(start, stop))

            def on_layer(layer: int, kv: LayerKv, notes: Notes, add: OnLayer = add) -> None:
                if self._closed or not job.wanted():
                    raise NotWantedError
                add(layer, kv, notes)

            try:
                last = self._model.run(prompt, start, stop, on_layer)
            except NotWantedError:
                return
        assert last is not None  # a prompt has tokens
        handover.finish()
        logits, notes = last
        notes.refuse()
        job.logits = logits.cpu().numpy()

    def _factors(self, adapter: JobAdapter | None) -> dict[str, Factors]:
        if adapter is None:
            return {}
        if self._adapter[0] != adapter.digest:
            found = factors_of(adapter.weights, self._model.weights.to_device)
            self._adapter = (adapter.digest, found)
        return self._adapter[1]
