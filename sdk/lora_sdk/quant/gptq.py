"""Error compensation: inputs are rounded one after another, and later ones compensate the errors of
earlier ones (GPTQ, arXiv 2210.17323, Algorithm 1). The inputs with the largest squares come first.
Scales are those of rounding to nearest, so the order leaves groups where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.quant.rounding import int4_columns, int4_scales, int4_values, int8_scales, int8_values

F32 = NDArray[np.float32]
DAMPING = 0.01
BLOCK = 64  # inputs whose errors update later ones together
Round = Callable[[int, F32], tuple[F32, F32]]
"""(input k, its weights [N]) -> (integers, their dequantized values)."""


def int4_compensated(w: F32, group: int, symmetric: bool, hessian: F32) -> Int4Columns:
    """w [N, K] in groups along K. `hessian` [K, K]: the mean of x x^T over calibration rows."""
    scales, zeros = int4_scales(w, group, symmetric, np.diagonal(hessian))

    def rounded(index: int, column: F32) -> tuple[F32, F32]:
        scale, zero = scales[:, index // group], zeros[:, index // group]
        values = int4_values(column, scale, zero)
        return values, (values - zero) * scale

    return int4_columns(_compensate(w, hessian, rounded), scales, zeros)


def int8_compensated(w: F32, hessian: F32) -> Int8Columns:
    """w [N, K] with a scale per output."""
    scales = int8_scales(w, np.diagonal(hessian))

    def rounded(_: int, column: F32) -> tuple[F32, F32]:
        values = int8_values(column, scales)
        return values, values * scales

    return Int8Columns(_compensate(w, hessian, rounded).astype(np.int8), scales)


def _compensate(w: F32, hessian: F32, rounded: Round) -> F32:
    """The integers [N, K]."""
    order = np.argsort(-np.diagonal(hessian), kind="stable")
    factor = inverse_factor(hessian[np.ix_(order, order)])
    rest = np.ascontiguousarray(w.T[order])
    values = np.empty_like(rest)
    for first in range(0, len(rest), BLOCK):
        stop = min(len(rest), first + BLOCK)
        errors = np.empty((stop - first, rest.shape[1]), np.float32)
        for index in range(first, stop):
            values[index], dequantized = rounded(int(order[index]), rest[index])
            error = (rest[index] - dequantized) / factor[index, index]
            errors[index - first] = error
            rest[index + 1 : stop] -= factor[index, index + 1 : stop, None] * error
        rest[stop:] -= factor[first:stop, stop:].T @ errors
    found = np.empty_like(values)
    found[order] = values
    return np.ascontiguousarray(found.T)


def inverse_factor(hessian: F32) -> F32:
    """Upper Cholesky factor of the inverse of the damped `hessian` [K, K], in FP32."""
    wide = hessian.astype(np.float64)
    diagonal = np.einsum("ii->i", wide)
    diagonal[diagonal == 0] = 1.0  # an input that is always zero
    diagonal += DAMPING * diagonal.mean()
    lower = np.linalg.cholesky(wide[::-1, ::-1])
    # wide is U @ U.T, where U is lower in reverse order, so the factor is U's inverse
    return np.ascontiguousarray(_inverse_of_lower(lower)[::-1, ::-1], np.float32)


def _inverse_of_lower(lower: NDArray[Any]) -> NDArray[Any]:
    """The inverse of a lower triangular matrix, by halves."""
    if len(lower) <= BLOCK:
        small: NDArray[Any] = np.tril(np.linalg.inv(lower))
        return small
    half, found = len(lower) // 2, np.zeros_like(lower)
    found[:half, :half] = first = _inverse_of_lower(lower[:half, :half])
    found[half:, half:] = second = _inverse_of_lower(lower[half:, half:])
    found[half:, :half] = -second @ (lower[half:, :half] @ first)
    return found
