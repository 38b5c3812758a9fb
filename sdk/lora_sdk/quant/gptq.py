"""Error compensation: inputs are rounded sequentially, and later inputs compensate the error of
earlier ones (GPTQ, arXiv 2210.17323, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.quant.rounding import (
    group_scales,
    int4_values,
    int8_values,
    int8_weights,
)

F32 = NDArray[np.float32]
DAMPING = 0.01
BLOCK = 128  # inputs whose errors update later ones together; a multiple of groups
Round = Callable[[int, F32], tuple[F32, F32]]
"""(input k, its weights [N]) -> (integers, their dequantized values)."""


def int4_compensated(w: F32, group: int, symmetric: bool, hessian: F32) -> Int4Columns:
    """w [N, K] in groups along K. `hessian` [K, K]: the sum of x x^T over calibration rows."""
    n, k = w.shape
    importance = np.diagonal(hessian)
    scales, zeros = np.empty((n, k // group), np.float32), np.empty((n, k // group), np.float32)

    def begin(first: int, rest: F32) -> None:
        at = slice(first, first + group)
        found = group_scales(np.ascontiguousarray(rest), symmetric, importance[at])
        scales[:, first // group], zeros[:, first // group] = found

    def rounded(index: int, column: F32) -> tuple[F32, F32]:
        scale, zero = scales[:, index // group], zeros[:, index // group]
        values = int4_values(column, scale, zero)
        return values, (values - zero) * scale

    values = _compensate(w, hessian, rounded, begin, group)
    return Int4Columns(values.astype(np.uint8), scales.astype(np.float16), zeros.astype(np.uint8))


def int8_compensated(w: F32, per_channel: bool, hessian: F32) -> Int8Columns:
    """w [N, K] with the scales of rounding to nearest."""
    scales = int8_weights(w, per_channel, np.diagonal(hessian)).scales

    def rounded(_: int, column: F32) -> tuple[F32, F32]:
        values = int8_values(column[:, None], scales)[:, 0].astype(np.float32)
        return values, values * scales

    values = _compensate(w, hessian, rounded, lambda *_: None, w.shape[1])
    return Int8Columns(values.astype(np.int8), scales)


def _compensate(
    w: F32, hessian: F32, rounded: Round, begin: Callable[[int, F32], None], group: int
) -> F32:
    """The integers [N, K]. `begin` receives each group's first input, and the group's weights with
    all updates so far."""
    rest, factor = w.T.copy(), inverse_factor(hessian)
    k = len(rest)
    values = np.empty_like(rest)
    for first in range(0, k, BLOCK):
        stop = min(k, first + BLOCK)
        errors = np.empty((stop - first, rest.shape[1]), np.float32)
        for index in range(first, stop):
            if index % group == 0:
                begin(index, rest[index : index + group].T)
            values[index], dequantized = rounded(index, rest[index])
            error = (rest[index] - dequantized) / factor[index, index]
            errors[index - first] = error
            rest[index + 1 : stop] -= factor[index, index + 1 : stop, None] * error
        rest[stop:] -= factor[first:stop, stop:].T @ errors
    return np.ascontiguousarray(values.T)


def inverse_factor(hessian: F32) -> F32:
    """Upper Cholesky factor of the inverse of the damped `hessian` [K, K], in FP32."""
    wide = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", wide)
    diagonal[diagonal == 0] = 1.0  # an input that is always zero
    diagonal += DAMPING * diagonal.mean()
    inverse = np.linalg.inv(wide)
    lower = np.linalg.cholesky((inverse + inverse.T) / 2)
    return np.ascontiguousarray(lower.T, np.float32)
