"""Slopes of ALiBi: what attention adds to a head's scores for each position
(docs/numbers.md, 3.13)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.numerics import bf16, exp2_64
from lora_sdk.model.spec import ModelConfig

F32 = NDArray[np.float32]


def slope_table(config: ModelConfig) -> F32:
    """FP32 [heads, 2]: the slope and the factor of each query head. ModelError: a model without
    ALiBi."""
    if config.alibi is None:
        raise ModelError(f"{config.architecture}: has no ALiBi, so no slopes")
    slopes = exp2_64(_exponents(config.heads)).astype(np.float32)
    factor = np.float32(1)
    if config.alibi == "falcon":
        slopes, factor = bf16(slopes), np.float32(1.0 / math.sqrt(config.head_dim))
    return np.stack([slopes, np.full(config.heads, factor, np.float32)], axis=1)


def score_bias(config: ModelConfig, positions: int) -> F32:
    """What is added to each head's scores of the last of `positions` positions: FP32
    [heads, positions]."""
    assert config.alibi is not None
    slope, factor = np.split(slope_table(config), 2, axis=1)
    if config.alibi == "falcon":
        added: F32 = bf16(slope * bf16(np.arange(positions, dtype=np.float32))) * factor
        return added
    distance: F32 = np.arange(1 - positions, 1, dtype=np.float32)
    found: F32 = slope * distance
    return found


def _exponents(heads: int) -> NDArray[np.float64]:
    """log2 of each head's slope: those of the largest power of two of heads, then every second one
    of twice as many. (MPT's code takes both from the latter, which gives the same.)"""
    whole = 1 << (heads.bit_length() - 1)
    first = np.arange(1, whole + 1, dtype=np.float64) * (-8.0 / whole)
    rest = (2 * np.arange(heads - whole, dtype=np.float64) + 1) * (-4.0 / whole)
    return np.concatenate([first, rest])
