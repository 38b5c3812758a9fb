"""A model that computes prompts with the boards' bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lora_prefill.exact.adapter import Factors
from lora_prefill.exact.kernels import Kernels
from lora_prefill.exact.operations import STEPS, Step
from lora_prefill.exact.state import LayerKv, Notes, Prompt, Rows
from lora_prefill.exact.weights import Source, Weights
from lora_sdk.model import operations as ops
from lora_sdk.model.block import describe

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

OnLayer = Callable[[int, LayerKv, Notes], None]


class ExactModel:
    """The block description's operations with their weights on a device."""

    def __init__(
        self, config: ModelConfig, source: Source, device: torch.device, kernels: Kernels
    ) -> None:
        """ModelError as for reading the weights."""
        block = describe(config)
        self.weights = Weights(config, source, device)

        def make(one: ops.Operation) -> Step:
            return ops.row(STEPS, one)(self.weights, kernels, one)

        self._before: list[Step] = [make(one) for one in block.before]
        self._layers = [[make(one) for one in layer] for layer in block.layers]
        self._after: list[Step] = [make(one) for one in block.after]

    def prompt(self, tokens: Sequence[int], factors: dict[str, Factors] | None = None) -> Prompt:
        """A prompt of which nothing is computed yet."""
        ids = torch.tensor(list(tokens), dtype=torch.int64, device=self.weights.device)
        return Prompt(ids, factors=factors or {})

    def run(
        self, prompt: Prompt, first: int, stop: int, on_layer: OnLayer
    ) -> tuple[Tensor, Notes] | None:
        """Rows `first` .. `stop`-1, after those before them. `on_layer` is called with each layer's
        number, K and V and what it noted. Returns FP32 logits [vocabulary] of the prompt's last
        row, with what was noted behind the layers; None if it is not among these. The device may
        still be at work."""
        rows = Rows(prompt, first, stop)
        with torch.inference_mode():
            self._run(self._before, rows)
            for layer, steps in enumerate(self._layers):
                self._run(steps, rows)
                on_layer(layer, prompt.layers[layer], rows.taken())
            if not rows.last:
                return None
            self._run(self._after, rows)
            return rows.buffers["logits"][0], replace(rows.taken(), first=stop - 1)

    def _run(self, steps: list[Step], rows: Rows) -> None:
        for step in steps:
            step(rows)
