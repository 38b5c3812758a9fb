"""Products of INT8 activations: exact INT32 sums, and 4-bit weights in groups
(docs/numbers.md, 6.2 and 6.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host.emu.unit_call import LINE_BYTES, UnitCall
from lora_host.emu.weight_blocks import int4_weights, int8_weights, weight_group
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum

EXACT_K = 1024


def exact_product(
    x: NDArray[np.int8], w: NDArray[np.int8] | NDArray[np.uint8]
) -> NDArray[np.int64]:
    """Integer sums of x [rows, K] times w [K, columns]. FP32 holds those over 1024 inputs exactly,
    in whatever order they are added: 1024*127*128 stays below 2^24."""
    total = np.zeros((len(x), w.shape[1]), np.int64)
    for k in range(0, x.shape[1], EXACT_K):
        part = x[:, k : k + EXACT_K].astype(np.float32) @ w[k : k + EXACT_K].astype(np.float32)
        total += part.astype(np.int64)
    return total


def quantized_rows(call: UnitCall) -> NDArray[np.int8]:
    """INT8 [rows, K] of the command."""
    c = call.command
    return call.rows_view(c.x_bank, c.x_offset, c.x_stride, c.k, np.int8)


def int8_product(call: UnitCall, start: int, stop: int) -> F32:
    """FP32(x*W) of columns start..stop-1, before their scale."""
    total = exact_product(quantized_rows(call), int8_weights(call, start, stop))
    return total.astype(np.float32)


def w4a8_product(call: UnitCall, start: int, stop: int) -> F32:
    """FP32 sums of groups, each an exact INT32 times its FP16 scale, before the product's scale.

    A group that a segment's end crosses is cut there; segments join by the fixed tree."""
    x = quantized_rows(call)
    values, scales, zeros = int4_weights(call, start, stop)
    group = weight_group(call)
    parts: list[F32 | None] = []
    for first, end in segment_bounds(call.command.k):
        total = np.zeros((len(x), stop - start), np.float32)
        while first < end:
            place = first // group
            until = min(end, (place + 1) * group)
            piece = x[:, first:until]
            sums = exact_product(piece, values[first:until])
            sums -= piece.sum(axis=1, dtype=np.int64)[:, None] * zeros[place].astype(np.int64)
            total += sums.astype(np.float32) * scales[place].astype(np.float32)
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
