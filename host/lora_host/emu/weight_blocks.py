"""Weights in the banks: blocks of every type, assembled to whole columns (abi.h).

They are read again in each call, so changes in board memory take effect."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import LINE_BYTES, UnitCall
from lora_host.numerics import F16

BLOCK_K, BLOCK_N = abi.BLOCK_K, abi.BLOCK_N
INT4_VALUES = abi.BLOCK_BYTES_INT4
_FIXED_BYTES = {
    abi.WEIGHT_FP16: abi.BLOCK_BYTES_FP16,
    abi.WEIGHT_INT8: abi.BLOCK_BYTES_INT8,
}
_INT4_BYTES = {
    32: abi.BLOCK_BYTES_INT4_32,
    64: abi.BLOCK_BYTES_INT4_64,
    128: abi.BLOCK_BYTES_INT4_128,
}
_GGUF_BYTES = {
    abi.GGUF_Q8_0: abi.BLOCK_BYTES_Q8_0,
    abi.GGUF_Q5_0: abi.BLOCK_BYTES_Q5_0,
    abi.GGUF_Q4_1: abi.BLOCK_BYTES_Q4_1,
    abi.GGUF_Q5_1: abi.BLOCK_BYTES_Q5_1,
    abi.GGUF_Q4_K: abi.BLOCK_BYTES_Q4_K,
    abi.GGUF_Q5_K: abi.BLOCK_BYTES_Q5_K,
    abi.GGUF_Q6_K: abi.BLOCK_BYTES_Q6_K,
    abi.GGUF_K_MIXED: abi.BLOCK_BYTES_K_MIXED,
    abi.GGUF_Q4_0: abi.BLOCK_BYTES_Q4_0,
    abi.GGUF_IQ4_NL: abi.BLOCK_BYTES_IQ4_NL,
    abi.GGUF_MXFP4: abi.BLOCK_BYTES_MXFP4,
}


def weight_kind(call: UnitCall) -> int:
    """enum lora_weight_type of the command."""
    return int(call.command.weight_type) & abi.WEIGHT_TYPE_MASK


def weight_group(call: UnitCall) -> int:
    """Group size of 4-bit types: weights along K that share a scale."""
    return 1 << (int(call.command.weight_type) >> abi.WEIGHT_GROUP_SHIFT)


def block_bytes(call: UnitCall) -> int:
    """Bytes of one block. ValueError for an unknown type."""
    kind, group = weight_kind(call), weight_group(call)
    if kind in _FIXED_BYTES and group == 1:
        return _FIXED_BYTES[kind]
    if kind in (abi.WEIGHT_W4A8, abi.WEIGHT_W4A16) and group in _INT4_BYTES:
        return _INT4_BYTES[group]
    found = _GGUF_BYTES.get(int(call.command.weight_type) >> abi.WEIGHT_GROUP_SHIFT)
    if kind == abi.WEIGHT_GGUF and found is not None:
        return found
    raise ValueError(f"weight type {call.command.weight_type:#x} is unknown")


def weight_blocks(call: UnitCall, start: int, stop: int) -> NDArray[np.uint8]:
    """uint8 [tiles, K blocks, bytes] of columns start..stop-1; `start` begins a tile."""
    c, size = call.command, block_bytes(call)
    k_blocks = -(-c.k // BLOCK_K)
    tiles = -(-(stop - start) // BLOCK_N)
    j = np.arange(tiles * k_blocks) + start // BLOCK_N * k_blocks
    request = c.first + j // c.merge
    index = request // c.bank_count * c.merge + j % c.merge
    blocks = np.empty((len(j), size), np.uint8)
    for bank in range(c.bank_count):
        here = np.flatnonzero(request % c.bank_count == bank)
        if here.size:  # consecutive blocks of one bank are contiguous
            offset = c.weight_line * LINE_BYTES + int(index[here[0]]) * size
            blocks[here] = call.view(c.bank_first + bank, offset, (here.size, size), np.uint8)
    return blocks.reshape(tiles, k_blocks, size)


def block_columns(parts: NDArray[Any], rows: int, count: int) -> NDArray[Any]:
    """[tiles, rows and padding, 32] as [rows, count], without the padding."""
    whole = parts.transpose(1, 0, 2).reshape(parts.shape[1], -1)
    return np.ascontiguousarray(whole[:rows, :count])


def fp16_weights(call: UnitCall, start: int, stop: int) -> F16:
    """FP16 [K, stop-start] of FP16 blocks."""
    blocks = weight_blocks(call, start, stop).view(np.float16)
    return block_columns(blocks.reshape(len(blocks), -1, BLOCK_N), call.command.k, stop - start)


def int8_weights(call: UnitCall, start: int, stop: int) -> NDArray[np.int8]:
    """INT8 [K, stop-start] of INT8 blocks. Four weights of a column are adjacent."""
    blocks = weight_blocks(call, start, stop).view(np.int8).reshape(-1, BLOCK_N, 4)
    tiles = -(-(stop - start) // BLOCK_N)
    ordered = blocks.transpose(0, 2, 1).reshape(tiles, -1, BLOCK_N)
    return block_columns(ordered, call.command.k, stop - start)


def int4_weights(
    call: UnitCall, start: int, stop: int
) -> tuple[NDArray[np.uint8], F16, NDArray[np.uint8]]:
    """(values uint8 [K, columns], scales FP16 [K/group, columns], zeros uint8 likewise)."""
    group, count = weight_group(call), stop - start
    blocks = weight_blocks(call, start, stop)
    tiles, each, groups = len(blocks), BLOCK_K // group, call.command.k // group
    packed = blocks[..., :INT4_VALUES].reshape(tiles, -1, BLOCK_N, 4)
    nibbles = np.stack([packed & 15, packed >> 4], axis=2)  # [tiles, K/8, 2, 32, 4]
    values = nibbles.transpose(0, 1, 2, 4, 3).reshape(tiles, -1, BLOCK_N)
    end = INT4_VALUES + each * BLOCK_N * 2
    raw = np.ascontiguousarray(blocks[..., INT4_VALUES:end]).view(np.float16)
    scales = raw.reshape(tiles, -1, BLOCK_N)
    pairs = blocks[..., end : end + each * BLOCK_N // 2]
    zeros = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(tiles, -1, BLOCK_N)
    return (
        block_columns(values, call.command.k, count),
        block_columns(scales, groups, count),
        block_columns(zeros, groups, count),
    )
