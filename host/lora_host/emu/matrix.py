"""Matmul: y = FP16(x*W + bias), or FP32, reading W's blocks from the banks; of INT8
activations FP16(x*W*scale + bias), with FLAG_ROW_SCALES x*W*scale times the row's own
(docs/numbers.md, 3.3 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lora_host import abi
from lora_host.emu.adapter_up import add_adapters
from lora_host.emu.gguf_blocks import gguf_weights
from lora_host.emu.integer import column_scales, int8_matmul, row_scales, w4a8_matmul
from lora_host.emu.unit_call import LINE_BYTES, NO_BANK, UnitCall, padded
from lora_host.emu.weight_blocks import (
    BLOCK_N,
    fp16_weights,
    int4_weights,
    weight_group,
    weight_kind,
)
from lora_host.numerics import F16, F32, to_fp16
from lora_host.segments import segment_bounds, tree_sum

SEGMENTS, TYPE_FP32 = abi.SEGMENTS, abi.FP32
WORK_ELEMENTS = 1 << 18  # products per batch: they fit the cache
MIN_COLUMNS = 128  # fewer columns are slow: NumPy's overhead dominates

Matmul = Callable[[int, int], F32]


def matrix(call: UnitCall) -> None:
    """Runs all rows of the command, some column tiles at a time."""
    c = call.command
    if call.row_count == 0:
        return
    y_type = np.float32 if c.y_type == TYPE_FP32 else np.float16
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.n, y_type)
    store = call.store_fp32 if c.y_type == TYPE_FP32 else call.store_fp16
    for start, total in products(call):
        stop = start + total.shape[1]
        offset = _bias_offset(call, is_scaled(call))
        if offset is not None:
            bias = call.view(c.bias_bank, offset + 2 * start, (stop - start,), np.float16)
            total = total + bias.astype(np.float32)
        if c.adapter:
            add_adapters(call, total, start)
        store(y[:, start:stop], total)


def is_scaled(call: UnitCall) -> bool:
    """Whether x is INT8, with a scale a column."""
    return weight_kind(call) in (abi.WEIGHT_INT8, abi.WEIGHT_W4A8)


def products(call: UnitCall) -> Iterator[tuple[int, F32]]:
    """(first column, FP32 [rows, columns]) of x*W, scales included."""
    c = call.command
    matmul, width = _matmul(call)
    for start in range(0, c.n, width):
        stop = min(c.n, start + width)
        total = matmul(start, stop)
        if is_scaled(call):
            total = total * column_scales(call, start, stop)
        if c.flags & abi.FLAG_ROW_SCALES:
            total = total * row_scales(call)
        yield start, total


def _bias_offset(call: UnitCall, scaled: bool) -> int | None:
    """Byte offset of the bias in its bank, after the scales if there are any; None without a
    bias."""
    c = call.command
    offset = c.bias_line * LINE_BYTES
    if scaled:
        return None if c.flags & abi.FLAG_NO_BIAS else offset + padded(4 * c.n)
    return None if c.bias_bank == NO_BANK else offset


def _matmul(call: UnitCall) -> tuple[Matmul, int]:
    """A function for columns start..stop-1, and the number of columns per call."""
    kind, c = weight_kind(call), call.command
    if kind in (abi.WEIGHT_INT8, abi.WEIGHT_W4A8):
        integer = int8_matmul if kind == abi.WEIGHT_INT8 else w4a8_matmul
        columns = max(MIN_COLUMNS, 8 * WORK_ELEMENTS // c.k // BLOCK_N * BLOCK_N)
        return (lambda start, stop: integer(call, start, stop)), columns
    x = pack_rows(call.rows_view(c.x_bank, c.x_offset, c.x_stride, c.k, np.float16))
    weights = _HALVES[kind]
    columns = max(MIN_COLUMNS, WORK_ELEMENTS // (len(x) * SEGMENTS) // BLOCK_N * BLOCK_N)
    return (
        lambda start, stop: segmented_matmul(x, pack_columns(weights(call, start, stop)))
    ), columns


def w4a16_weights(call: UnitCall, start: int, stop: int) -> F16:
    """FP16((q - zero)*scale) of columns start..stop-1: [K, columns]."""
    values, scales, zeros = int4_weights(call, start, stop)
    group = weight_group(call)
    integers = values.astype(np.int8) - np.repeat(zeros, group, axis=0).astype(np.int8)
    return to_fp16(
        integers.astype(np.float32) * np.repeat(scales, group, axis=0).astype(np.float32)
    )


_HALVES: dict[int, Callable[[UnitCall, int, int], F16]] = {
    abi.WEIGHT_FP16: fp16_weights,
    abi.WEIGHT_W4A16: w4a16_weights,
    abi.WEIGHT_GGUF: gguf_weights,
}


def longest_segment(columns: int) -> int:
    """Columns of the longest of the eight segments."""
    return max(end - start for start, end in segment_bounds(columns))


def pack_rows(x: Any) -> F32:
    """FP16 [rows, K] -> FP32 [longest segment, 8, rows]; shorter segments are padded with +0.

    Adding a product of two +0 to a sum that began at +0 changes no bit, so padding is harmless.
    """
    return pack_columns(x.T)


def pack_columns(w: Any) -> F32:
    """FP16 [K, columns] -> FP32 [longest segment, 8, columns], likewise."""
    k, columns = w.shape
    packed = np.zeros((longest_segment(k), SEGMENTS, columns), np.float32)
    for s, (start, end) in enumerate(segment_bounds(k)):
        packed[: end - start, s] = w[start:end]
    return packed


def segmented_matmul(x: F32, w: F32) -> F32:
    """FP32 [steps, 8, rows] times [steps, 8, columns] -> [rows, columns], sequential in a segment.

    Products of FP16 values are exact in FP32, so computing several before adding is harmless.
    """
    steps, _, rows = x.shape
    columns = w.shape[2]
    total = np.zeros((SEGMENTS, rows, columns), np.float32)
    batch = max(1, min(steps, WORK_ELEMENTS // total.size))
    products = np.empty((batch, *total.shape), np.float32)
    for k in range(0, steps, batch):
        count = min(batch, steps - k)
        np.multiply(
            x[k : k + count, :, :, None], w[k : k + count, :, None, :], out=products[:count]
        )
        for i in range(count):
            np.add(total, products[i], out=total)
    return tree_sum(list(total))
