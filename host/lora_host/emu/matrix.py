"""Matrix product: y = FP16(x*W + bias), or FP32, reading W's blocks from the banks."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_host.emu.adapter_up import add_adapters
from lora_host.emu.unit_call import LINE_BYTES, NO_BANK, UnitCall
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum

BLOCK_K, BLOCK_N, BLOCK_BYTES = abi.BLOCK_K, abi.BLOCK_N, abi.BLOCK_BYTES_FP16
SEGMENTS, TYPE_FP32 = abi.SEGMENTS, abi.FP32
WORK_ELEMENTS = 1 << 18  # products held at once: they stay in the cache
MIN_COLUMNS = 128  # shorter runs leave NumPy busy with its own loops


def matrix(call: UnitCall) -> None:
    """All rows of the command, a run of column tiles at a time."""
    c = call.command
    rows = call.row_count
    if rows == 0:
        return
    y_type = np.float32 if c.y_type == TYPE_FP32 else np.float16
    x = pack_rows(call.rows_view(c.x_bank, c.x_offset, c.x_stride, c.k, np.float16))
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.n, y_type)
    store = call.store_fp32 if c.y_type == TYPE_FP32 else call.store_fp16
    width = max(MIN_COLUMNS, WORK_ELEMENTS // (len(x) * SEGMENTS) // BLOCK_N * BLOCK_N)
    for start in range(0, c.n, width):
        stop = min(c.n, start + width)
        total = segmented_product(x, read_weights(call, start, stop))
        if c.bias_bank != NO_BANK:
            offset = c.bias_line * LINE_BYTES + 2 * start
            bias = call.view(c.bias_bank, offset, (stop - start,), np.float16)
            total = total + bias.astype(np.float32)
        if c.adapter:
            add_adapters(call, total, start)
        store(y[:, start:stop], total)


def longest_segment(columns: int) -> int:
    """Columns of the longest of the eight segments."""
    return max(end - start for start, end in segment_bounds(columns))


def pack_rows(x: Any) -> F32:
    """FP16 [rows, K] -> FP32 [longest segment, 8, rows]; shorter segments end in +0.

    A product of two +0 added to a sum that began at +0 changes no bit, so padding may be added.
    """
    rows, columns = x.shape
    packed = np.zeros((longest_segment(columns), SEGMENTS, rows), np.float32)
    for s, (start, end) in enumerate(segment_bounds(columns)):
        packed[: end - start, s] = x[:, start:end].T
    return packed


def read_weights(call: UnitCall, start: int, stop: int) -> F32:
    """Columns start..stop-1 as FP32 [longest segment, 8, columns]; `start` begins a tile.

    Converted anew at each call: what stands in board memory now is what counts.
    """
    k = call.command.k
    first, tiles = start // BLOCK_N, -(-(stop - start) // BLOCK_N)
    blocks = np.empty((tiles, -(-k // BLOCK_K), BLOCK_K, BLOCK_N), np.float16)
    for tile in range(tiles):
        for k_block in range(blocks.shape[1]):
            blocks[tile, k_block] = weight_block(call, first + tile, k_block)
    columns = blocks.reshape(tiles, -1, BLOCK_N)
    columns[-1, :, (stop - start - 1) % BLOCK_N + 1 :] = 0  # padding takes no part
    packed = np.zeros((longest_segment(k), SEGMENTS, tiles, BLOCK_N), np.float32)
    for s, (top, end) in enumerate(segment_bounds(k)):
        packed[: end - top, s] = columns[:, top:end].transpose(1, 0, 2)
    return packed.reshape(*packed.shape[:2], -1)[:, :, : stop - start]


def weight_block(call: UnitCall, tile: int, k_block: int) -> Any:
    """View of one block, FP16 [128, 32], where abi.h says that it lies."""
    c = call.command
    j = tile * -(-c.k // BLOCK_K) + k_block
    request = c.first + j // c.merge
    bank = c.bank_first + request % c.bank_count
    place = request // c.bank_count * c.merge + j % c.merge
    offset = c.weight_line * LINE_BYTES + place * BLOCK_BYTES
    return call.view(bank, offset, (BLOCK_K, BLOCK_N), np.float16)


def segmented_product(x: F32, w: F32) -> F32:
    """FP32 [steps, 8, rows] times [steps, 8, columns] -> [rows, columns], sequential in a segment.

    Products of FP16 values are exact in FP32, so making several ahead of their sums is harmless.
    """
    steps, _, rows = x.shape
    columns = w.shape[2]
    total = np.zeros((SEGMENTS, rows, columns), np.float32)
    ahead = max(1, min(steps, WORK_ELEMENTS // total.size))
    products = np.empty((ahead, *total.shape), np.float32)
    for k in range(0, steps, ahead):
        count = min(ahead, steps - k)
        np.multiply(
            x[k : k + count, :, :, None], w[k : k + count, :, None, :], out=products[:count]
        )
        for i in range(count):
            np.add(total, products[i], out=total)
    return tree_sum(list(total))
