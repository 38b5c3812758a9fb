"""A pass of one layer that records the inputs of each matmul and of attention: sums over all rows,
and some of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import F32, attention, head_bias, run_layer, softmax_times
from lora_sdk.quant.layer import Parameters, roles

SAMPLE = 1024  # rows kept, over all windows
PRIOR = 32  # rows of an expert that stand for all experts' of the layer


@dataclass
class Inputs:
    """What is known of the inputs of a matmul over all windows: `moments` [K, K] is the sum of
    x x^T over `count` rows, `rows` [n, K] are some of them, spread over the windows, and of each
    window the one with the largest value."""

    moments: F32
    count: int = 0
    kept: list[F32] = field(default_factory=list)

    def add(self, x: F32, every: int) -> None:
        """Rows x [T, K] of a window; every `every`-th is kept."""
        self.moments += x.T @ x
        self.count += len(x)
        self.kept += [x[::every].copy(), x[np.abs(x).max(axis=1).argmax()][None]]

    @property
    def rows(self) -> F32:
        """The rows that were kept [n, K]."""
        return np.concatenate(self.kept)

    @property
    def hessian(self) -> F32:
        """The mean of x x^T [K, K]."""
        mean: F32 = self.moments / np.float32(self.count)
        return mean

    def divided(self, s: F32) -> Inputs:
        """Of the inputs divided by s [K]."""
        return Inputs(self.moments / np.outer(s, s), self.count, [self.rows / s])


def with_prior(all_of: Sequence[Inputs], own: Inputs | None) -> Inputs:
    """The inputs of one expert's down: its own, None where no row chose it, and PRIOR rows more
    whose columns are alike, with the mean square of all experts' inputs `all_of`. So one that few
    rows chose is rounded nearly to nearest, and one that none chose to nearest."""
    k = len(all_of[0].moments)
    square = sum(float(np.trace(one.moments)) for one in all_of)
    square /= k * sum(one.count for one in all_of)
    moments = np.eye(k, dtype=np.float32) * np.float32(PRIOR * square)
    if own is None:
        return Inputs(moments, PRIOR, [np.zeros((0, k), np.float32)])
    return Inputs(moments + own.moments, PRIOR + own.count, own.kept)


@dataclass
class Record:
    """Within one layer, over all windows. `inputs`: by role, those of experts' down by matrix.
    `q`, `k`, `v`: FP32 [heads, n, head_dim], after RoPE, of the rows that are kept."""

    inputs: dict[str, Inputs] = field(default_factory=dict)
    q: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    k: F32 = field(default_factory=lambda: np.zeros(0, np.float32))
    v: F32 = field(default_factory=lambda: np.zeros(0, np.float32))


class RecordingOperations:
    """Operations of one layer from its parameters in memory, FP32 without any rounding. Every
    `every`-th row is kept."""

    def __init__(
        self, layer: int, config: ModelConfig, parameters: Parameters, every: int = 1
    ) -> None:
        self.config = config
        self._roles = {tensors[0]: role for role, tensors in roles(config, layer).items()}
        self._parameters = parameters
        self._every = every
        self._inputs: dict[str, Inputs] = {}
        self._attention: list[tuple[F32, F32, F32]] = []

    def linear(self, x: F32, name: str, whole: F32 | None = None) -> F32:
        """x @ W + bias. Records x."""
        role = name if whole is not None else self._roles.get(name)
        if role is not None:
            shape = (x.shape[1], x.shape[1])
            found = self._inputs.setdefault(role, Inputs(np.zeros(shape, np.float32)))
            found.add(x, self._every)
        y: F32 = x @ self._parameters.matrices[name]
        bias = self._parameters.vectors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Float attention. Records q, k and v."""
        self._attention.append((q[:, :: self._every], k[:, :: self._every], v[:, :: self._every]))
        scale, bias = self.config.attention_scale(layer), head_bias(self.config, q.shape[1])
        window, cap = self.config.window(layer), self.config.score_cap
        sinks = self.vector(f"layer.{layer}.sinks")
        return attention(q, k, v, scale, softmax_times, bias, window, cap, sinks)

    def store(self, x: F32) -> F32:
        """Unchanged."""
        return x

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter."""
        return self._parameters.vectors.get(name)

    def record(self) -> Record:
        """What was recorded, over all windows."""
        found = Record(dict(self._inputs))
        if self._attention:
            found.q, found.k, found.v = (
                np.concatenate(parts, axis=1) for parts in zip(*self._attention, strict=True)
            )
        return found


def record_layer(
    streams: Sequence[F32], layer: int, config: ModelConfig, parameters: Parameters
) -> tuple[list[F32], Record]:
    """Run windows [T, hidden] through a layer. Returns (outputs, record)."""
    every = max(1, sum(map(len, streams)) // SAMPLE)
    operations = RecordingOperations(layer, config, parameters, every)
    outputs = [run_layer(x, layer, config, operations) for x in streams]
    return outputs, operations.record()
