"""Rounding of weights [N, K] and of inputs to integers. The scale of each tensor, channel or group
is found by a search over clipping the range for finer steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.columns import Int4Columns, Int8Columns

F32 = NDArray[np.float32]
TOP_INT8 = 127
TOP_INT4, MIDDLE_INT4 = 15, 8
CLIPS = np.linspace(1.0, 0.5, 21, dtype=np.float32)
CLIPS_INT8 = np.linspace(1.0, 0.8, 9, dtype=np.float32)
INPUT_CLIPS = np.geomspace(1.0, 0.2, 25, dtype=np.float32)
INPUT_ROWS, TOP_ROWS = 2048, 64  # rows for the search of the input scale
SMALLEST = float(np.finfo(np.float16).tiny)


def half_scale(scale: F32) -> F32:
    """FP32 scales that are exact in FP16, so that readers with FP16 scales get the same weights.
    Zero becomes the smallest normal number."""
    found: F32 = np.maximum(scale, SMALLEST).astype(np.float16).astype(np.float32)
    return found


def int8_scales(w: F32, importance: F32) -> F32:
    """Scales [N] of w [N, K], one per output. `importance` [K]: weight of the squared errors per
    input (its mean square)."""
    top = np.abs(w).max(axis=1, keepdims=True)
    best, scale = np.full(top.shape, np.inf), half_scale(top / TOP_INT8)
    for clip in CLIPS_INT8:
        tried = half_scale(top * clip / np.float32(TOP_INT8))
        loss = (np.square(_int8(w, tried) * tried - w) @ importance)[:, None]
        better = loss < best
        best, scale = np.where(better, loss, best), np.where(better, tried, scale)
    found: F32 = scale[:, 0].astype(np.float32)
    return found


def int8_weights(w: F32, importance: F32) -> Int8Columns:
    """w [N, K] in -127..127 rounded to nearest, a scale per output."""
    scales = int8_scales(w, importance)
    return Int8Columns(_int8(w, scales[:, None]).astype(np.int8), scales)


def int8_values(column: F32, scales: F32) -> F32:
    """Weights [N] of one input as integers -127..127, with scales [N]."""
    return _int8(column, scales)


def group_scales(w: F32, symmetric: bool, importance: F32) -> tuple[F32, F32]:
    """Scales and zero points [N] of one group w [N, g], as stored, in FP32."""
    low = np.minimum(w.min(axis=1), 0)
    high = np.maximum(w.max(axis=1), 0)
    best = np.full(len(w), np.inf)
    scale, zero = np.ones(len(w), np.float32), np.full(len(w), np.float32(MIDDLE_INT4))
    for clip in CLIPS:
        tried, zeros = affine(low * clip, high * clip, symmetric)
        off = np.square(int4_round(w, tried, zeros) - w) * importance
        loss = off.sum(axis=1)
        better = loss < best
        best = np.where(better, loss, best)
        scale, zero = np.where(better, tried, scale), np.where(better, zeros, zero)
    return scale, zero


def int4_values(w: F32, scale: F32, zero: F32) -> F32:
    """w [N, ...] as integers 0..15, with scale and zero point [N]."""
    shape = (-1,) + (1,) * (w.ndim - 1)
    steps = np.rint(w / scale.reshape(shape)) + zero.reshape(shape)
    values: F32 = np.clip(steps, 0, TOP_INT4)
    return values


def int4_round(w: F32, scale: F32, zero: F32) -> F32:
    """The dequantized `int4_values`."""
    shape = (-1,) + (1,) * (w.ndim - 1)
    dequantized: F32 = (int4_values(w, scale, zero) - zero.reshape(shape)) * scale.reshape(shape)
    return dequantized


def int4_scales(w: F32, group: int, symmetric: bool, importance: F32) -> tuple[F32, F32]:
    """Scales and zero points [N, K/group] of w [N, K], as stored, in FP32."""
    n, k = w.shape
    flat = w.reshape(n * (k // group), group)
    weights = np.tile(importance.reshape(-1, group), (n, 1))
    scale, zero = group_scales(flat, symmetric, weights)
    return scale.reshape(n, k // group), zero.reshape(n, k // group)


def int4_columns(values: F32, scales: F32, zeros: F32) -> Int4Columns:
    """The integers as stored."""
    return Int4Columns(values.astype(np.uint8), scales.astype(np.float16), zeros.astype(np.uint8))


def int4_weights(w: F32, group: int, symmetric: bool, importance: F32) -> Int4Columns:
    """w [N, K] in groups of `group` along K, rounded to nearest."""
    scales, zeros = int4_scales(w, group, symmetric, importance)
    flat = w.reshape(-1, group)
    values = int4_values(flat, scales.reshape(-1), zeros.reshape(-1)).reshape(w.shape)
    return int4_columns(values, scales, zeros)


def input_scale(x: F32, importance: F32) -> np.float32:
    """The static INT8 scale of inputs x [rows, K]. `importance` [K]: weight of the squared errors
    (the sum of squares of each input's weights)."""
    tops = np.abs(x).max(axis=1)
    top = float(tops.max(initial=0))
    step = max(1, len(x) // INPUT_ROWS)
    every = np.zeros(len(x), np.float32)
    every[np.argsort(tops)[-TOP_ROWS:]] = 1  # the largest rows are rare: all of them are included
    every[::step] = np.maximum(every[::step], step)
    few, counts = x[every > 0], every[every > 0][:, None]
    best, found = np.inf, half_scale(np.full(1, top / TOP_INT8, np.float32))
    for clip in INPUT_CLIPS:
        tried = half_scale(np.full(1, top * clip / TOP_INT8, np.float32))
        off = np.square(_int8(few, tried) * tried - few) * (counts * importance)
        loss = float(off.sum(dtype=np.float64))
        if loss < best:
            best, found = loss, tried
    chosen: np.float32 = found[0]
    return chosen


def _int8(x: F32, scale: F32) -> F32:
    steps: F32 = np.clip(np.rint(x / scale), -TOP_INT8, TOP_INT8)
    return steps


def affine(low: F32, high: F32, symmetric: bool) -> tuple[F32, F32]:
    """Scale and zero point that cover low..high, a range that contains zero."""
    if symmetric:
        wide = np.maximum(-low / MIDDLE_INT4, high / (TOP_INT4 - MIDDLE_INT4))
        return half_scale(wide), np.full(low.shape, np.float32(MIDDLE_INT4))
    scale = half_scale((high - low) / np.float32(TOP_INT4))
    return scale, np.clip(np.rint(-low / scale), 0, TOP_INT4).astype(np.float32)
