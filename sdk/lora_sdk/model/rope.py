"""Cosines and sines of rotary positions, made once per model and placed as bytes: no board
computes them, so float64 costs nothing and every board count reads the same values
(docs/numbers.md, 3.6)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.numerics import power_64, sincos_64
from lora_sdk.model.spec import ModelConfig, RopeConfig


def rope_table(config: ModelConfig, positions: int) -> NDArray[np.float32]:
    """Table [positions, 2, head_dim/2]: cosines at index 0, sines at 1, of position * inv_freq;
    1 and 0 for pairs that are not rotated.

    Raises ModelError where the model has no rotary positions.
    """
    if config.rope is None:
        raise ModelError(f"{config.architecture}: has no rotary positions, so no RoPE table")
    inverse = inverse_frequencies(config.rope, config.rope.width or config.head_dim)
    position = np.arange(positions, dtype=np.float32)
    angle = (position[:, None] * inverse[None, :]).astype(np.float64)  # one FP32 rounding
    sine, cosine = sincos_64(angle)
    table = np.zeros((positions, 2, config.head_dim // 2), np.float32)
    table[:, 0] = 1
    table[:, 0, : len(inverse)], table[:, 1, : len(inverse)] = cosine, sine
    return table


def head_order(head_dim: int, width: int, interleaved: bool) -> tuple[int, ...]:
    """The order of a head's columns in which boards rotate it: column c is the file's column
    order[c]. The file rotates its first `width` columns, in pairs 2j and 2j + 1 where
    `interleaved`, else j and j + width/2; here pairs are c and c + head_dim/2, the rotated ones
    first. The order does not change dot products of q and k."""
    pairs = [(2 * j, 2 * j + 1) if interleaved else (j, j + width // 2) for j in range(width // 2)]
    rest = (head_dim - width) // 2
    pairs += [(width + j, width + rest + j) for j in range(rest)]
    return tuple(left for left, _ in pairs) + tuple(right for _, right in pairs)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> NDArray[np.float32]:
    """theta^(-2i/head_dim), scaled as `rope.kind` says in float64, rounded once: [head_dim/2]."""
    exponent = np.arange(0, head_dim, 2, dtype=np.float64) / -float(head_dim)
    inverse = power_64(np.full(exponent.shape, rope.theta, np.float64), exponent)
    if rope.kind == "linear":
        inverse = inverse / rope.factor
    elif rope.kind == "llama3":
        inverse = _llama3(rope, inverse)
    return inverse.astype(np.float32)


def _llama3(rope: RopeConfig, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    """Low frequencies are divided by `factor`, high ones kept, those between interpolated."""
    wave = 2.0 * math.pi / inverse
    old, low, high = float(rope.original_positions), rope.low_freq_factor, rope.high_freq_factor
    share = (old / wave - low) / (high - low)
    blended = (1.0 - share) * (inverse / rope.factor) + share * inverse
    slow_or_blended = np.where(wave > old / low, inverse / rope.factor, blended)
    scaled: NDArray[np.float64] = np.where(wave < old / high, inverse, slow_or_blended)
    return scaled
