"""Inverse frequencies of rotary positions by the kind of scaling, in float64 with the functions of
docs/numbers.md, 4.3 and 4.4."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lora_host.numerics import ln_64, power_64
from lora_sdk.model.spec import RopeConfig

F64 = NDArray[np.float64]
TWO_PI = 2.0 * math.pi


def inverse_frequencies(rope: RopeConfig, width: int) -> NDArray[np.float32]:
    """theta^(-2i/width), scaled as `rope.kind` says in float64, rounded once: [width/2]
    (docs/numbers.md, 3.6)."""
    theta = _dynamic_theta(rope, width) if rope.kind == "dynamic" else rope.theta
    scaled = _SCALINGS[rope.kind](rope, width, _powers(theta, width))
    return scaled.astype(np.float32)


def yarn_attention(factor: float, scale: float, scale_all: float) -> float:
    """YaRN's factor of cosines and sines where config.json has none; 0 for no mscale."""
    if scale and scale_all:
        return _yarn_log(factor, scale) / _yarn_log(factor, scale_all)
    return _yarn_log(factor, 1.0)


def yarn_scores(factor: float, scale_all: float) -> float:
    """DeepSeek's factor of scores with YaRN, of q and again of k; 1 without mscale_all_dim."""
    return _yarn_log(factor, scale_all) if scale_all else 1.0


def longrope_attention(factor: float, original: int) -> float:
    """Longrope's factor of cosines and sines where config.json has none."""
    if factor <= 1:
        return 1.0
    return math.sqrt(1.0 + float(ln_64(factor)) / float(ln_64(original)))


def _powers(theta: float, width: int) -> F64:
    exponent = np.arange(0, width, 2, dtype=np.float64) / -float(width)
    return power_64(np.full(exponent.shape, theta, np.float64), exponent)


def _default(rope: RopeConfig, width: int, inverse: F64) -> F64:
    return inverse


def _linear(rope: RopeConfig, width: int, inverse: F64) -> F64:
    return inverse / rope.factor


def _llama3(rope: RopeConfig, width: int, inverse: F64) -> F64:
    """Low frequencies are divided by `factor`, high ones kept, those between interpolated."""
    wave = TWO_PI / inverse
    old, low, high = float(rope.original_positions), rope.low_freq_factor, rope.high_freq_factor
    share = (old / wave - low) / (high - low)
    blended = (1.0 - share) * (inverse / rope.factor) + share * inverse
    slow_or_blended = np.where(wave > old / low, inverse / rope.factor, blended)
    scaled: F64 = np.where(wave < old / high, inverse, slow_or_blended)
    return scaled


def _yarn(rope: RopeConfig, width: int, inverse: F64) -> F64:
    """Fast pairs are kept, slow ones divided by `factor`, those between blended by a ramp over the
    pair's number (YaRN, 3.2)."""
    low, high = (_yarn_pair(rope, width, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, width - 1.0)
    if low == high:
        high += 0.001
    pair = np.arange(width // 2, dtype=np.float64)
    slow = np.clip((pair - low) / (high - low), 0.0, 1.0)
    return (inverse / rope.factor) * slow + inverse * (1.0 - slow)


def _yarn_pair(rope: RopeConfig, width: int, turns: float) -> float:
    """The pair that makes `turns` turns over the original positions, as a real number."""
    share = float(ln_64(rope.original_positions / (turns * TWO_PI)))
    return (width * share) / (2.0 * float(ln_64(rope.theta)))


def _yarn_log(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else (0.1 * scale) * float(ln_64(factor)) + 1.0


def _longrope(rope: RopeConfig, width: int, inverse: F64) -> F64:
    """A divisor for each pair: one list up to the original positions, another beyond."""
    long = rope.context > rope.original_positions
    return inverse / np.array(rope.long_factors if long else rope.short_factors, np.float64)


def _dynamic_theta(rope: RopeConfig, width: int) -> float:
    """theta for `context` positions of a model that was made for `original_positions`."""
    longest = max(rope.context, rope.original_positions)
    stretched = (rope.factor * longest) / rope.original_positions - (rope.factor - 1.0)
    return rope.theta * float(power_64(stretched, width / (width - 2.0)))


_SCALINGS: dict[str, Callable[[RopeConfig, int, F64], F64]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "dynamic": _default,
}
