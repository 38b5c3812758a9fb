"""A float pass of one layer that records the inputs of each matmul and of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import F32, attention, head_bias, run_layer, softmax_times
from lora_sdk.quant.layer import Parameters, roles


@dataclass
class Record:
    """Inputs within one layer over all windows. `inputs`: by role, [rows, K]. `q`, `k`, `v`: FP32
    [heads, rows, head_dim], after RoPE."""

    inputs: dict[str, F32] = field(default_factory=dict)
    q: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    k: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    v: F32 = field(default_factory=lambda: np.zeros(0, np.float32))


class RecordingOperations:
    """Operations of one layer from its parameters in memory, FP32 without any rounding."""

    def __init__(self, layer: int, config: ModelConfig, parameters: Parameters) -> None:
        self.config = config
        self._roles = {tensors[0]: role for role, tensors in roles(config, layer).items()}
        self._parameters = parameters
        self._inputs: dict[str, list[F32]] = {}
        self._attention: list[tuple[F32, F32, F32]] = []

    def linear(self, x: F32, name: str) -> F32:
        """x @ W + bias. Records x."""
        if name in self._roles:
            self._inputs.setdefault(self._roles[name], []).append(x)
        y: F32 = x @ self._parameters.matrices[name]
        bias = self._parameters.vectors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Float attention. Records q, k and v."""
        self._attention.append((q, k, v))
        scale, bias = self.config.attention_scale(layer), head_bias(self.config, q.shape[1])
        window, cap = self.config.window(layer), self.config.score_cap
        return attention(q, k, v, scale, softmax_times, bias, window, cap)

    def store(self, x: F32) -> F32:
        """Unchanged."""
        return x

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter."""
        return self._parameters.vectors.get(name)

    def record(self) -> Record:
        """The record, with windows concatenated."""
        found = Record({role: np.concatenate(parts) for role, parts in self._inputs.items()})
        if self._attention:
            found.q, found.k, found.v = (
                np.concatenate(parts, axis=1) for parts in zip(*self._attention, strict=True)
            )
        return found


def record_layer(
    streams: Sequence[F32], layer: int, config: ModelConfig, parameters: Parameters
) -> tuple[list[F32], Record]:
    """Run windows [T, hidden] through a layer. Returns (outputs, record)."""
    operations = RecordingOperations(layer, config, parameters)
    outputs = [run_layer(x, layer, config, operations) for x in streams]
    return outputs, operations.record()
