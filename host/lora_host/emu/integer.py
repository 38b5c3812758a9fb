"""Matmuls of INT8 activations: exact INT32 sums, and 4-bit weights in groups
(docs/numbers.md, 6.2, 6.3 and 6.10)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import LINE_BYTES, UnitCall, padded
from lora_host.emu.weight_blocks import int4_weights, int8_weights, weight_group
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum

EXACT_K = 1024


def exact_matmul(x: NDArray[np.int8], w: NDArray[np.int8] | NDArray[np.uint8]) -> NDArray[np.int64]:
    """Integer matmul of x [rows, K] and w [K, columns]. FP32 sums over 1024 inputs are exact in any
    order: 1024*127*128 is below 2^24."""
    total = np.zeros((len(x), w.shape[1]), np.int64)
    for k in range(0, x.shape[1], EXACT_K):
        part = x[:, k : k + EXACT_K].astype(np.float32) @ w[k : k + EXACT_K].astype(np.float32)
        total += part.astype(np.int64)
    return total


def quantized_rows(call: UnitCall) -> NDArray[np.int8]:
    """The command's activations, INT8 [rows, K]."""
    c = call.command
    return call.rows_view(c.x_bank, c.x_offset, c.x_stride, c.k, np.int8)


def int8_matmul(call: UnitCall, start: int, stop: int) -> F32:
    """FP32(x*W) of columns start..stop-1, before their scale."""
    total = exact_matmul(quantized_rows(call), int8_weights(call, start, stop))
    return total.astype(np.float32)


def w4a8_matmul(call: UnitCall, start: int, stop: int) -> F32:
    """FP32 sums of groups, each an exact INT32 times its FP16 scale, before the column's scale.

    Groups are split at segment ends. Segments are added in the fixed tree."""
    x = quantized_rows(call)
    values, scales, zeros = int4_weights(call, start, stop)
    group = weight_group(call)
    parts: list[F32 | None] = []
    for first, end in segment_bounds(call.command.k):
        total = np.zeros((len(x), stop - start), np.float32)
        while first < end:
            index = first // group
            until = min(end, (index + 1) * group)
            part = x[:, first:until]
            sums = exact_matmul(part, values[first:until])
            sums -= part.sum(axis=1, dtype=np.int64)[:, None] * zeros[index].astype(np.int64)
            total += sums.astype(np.float32) * scales[index].astype(np.float32)
            first = until
        parts.append(total)
    return tree_sum(parts)


def column_scales(call: UnitCall, start: int, stop: int) -> F32:
    """scale[n] of columns start..stop-1, FP32."""
    c = call.command
    found: F32 = call.view(
        c.bias_bank, c.bias_line * LINE_BYTES + 4 * start, (stop - start,), np.float32
    )
    return found


def row_scales(call: UnitCall) -> F32:
    """Each row's own scale [rows, 1], FP32, from the line behind its INT8 columns."""
    c, kind = call.command, abi.dtype("row_scale")
    behind = call.rows_view(c.x_bank, c.x_offset + padded(c.k), c.x_stride, 1, kind)
    found: F32 = behind["scale"]
    return found
