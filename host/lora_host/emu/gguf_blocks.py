"""Weights in GGUF's blocks (abi.h): FP16(v*scale - minimum), docs/numbers.md, 6.11."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import UnitCall
from lora_host.emu.weight_blocks import BLOCK_K, BLOCK_N, block_columns, weight_blocks
from lora_host.numerics import F16, F32, to_fp16

Bytes = NDArray[np.uint8]
FIFTH = (abi.GGUF_Q5_0, abi.GGUF_Q5_1, abi.GGUF_Q5_K)
UPPER = (abi.GGUF_Q6_K, abi.GGUF_K_MIXED)
PAIRS = (abi.GGUF_Q4_K, abi.GGUF_Q5_K)
OFFSET = {abi.GGUF_Q4_0: 8, abi.GGUF_Q5_0: 16, abi.GGUF_Q6_K: 32, abi.GGUF_K_MIXED: 32}
CODEBOOK = np.array(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.float32
)  # what the four bits of IQ4_NL mean


E2M1 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.float32)
"""What those of MXFP4 mean, in halves."""


def gguf_weights(call: UnitCall, start: int, stop: int) -> F16:
    """FP16 [K, stop-start] of columns start..stop-1; `start` begins a tile."""
    blocks = weight_blocks(call, start, stop)
    kind = int(call.command.weight_type) >> abi.WEIGHT_GROUP_SHIFT
    flat = blocks.reshape(-1, blocks.shape[-1])
    with np.errstate(all="ignore"):
        wide = to_fp16(_wide(kind, flat))
    return block_columns(wide.reshape(len(blocks), -1, BLOCK_N), call.command.k, stop - start)


def token_column(call: UnitCall, token: int) -> F16:
    """FP16 [columns]: a column of the matrix that has an EMBED's tokens (FLAG_TOKEN_BLOCKS)."""
    v = call.command
    packed = int(v.x_offset)
    matrix = SimpleNamespace(
        bank_first=v.a_bank, bank_count=packed & 255, merge=packed >> 8 & 255,
        weight_type=packed >> 16 & 255, weight_line=v.a_line, first=v.x_stride, k=v.columns,
    )  # fmt: skip
    start = token // BLOCK_N * BLOCK_N
    other = copy(call)
    other.command = matrix
    found = gguf_weights(other, start, start + BLOCK_N)
    return np.ascontiguousarray(found[:, token - start])


def _wide(kind: int, blocks: Bytes) -> F32:
    """Blocks [n, bytes] as FP32 [n, 128, 32]."""
    values, rest = _values(kind, blocks)
    scale, minimum = _scaling(kind, rest)
    each = BLOCK_K // scale.shape[1]
    product = values * np.repeat(scale, each, axis=1)
    return product if minimum is None else product - np.repeat(minimum, each, axis=1)


def _values(kind: int, blocks: Bytes) -> tuple[F32, Bytes]:
    """v as FP32 [n, 128, 32], and the bytes behind."""
    if kind == abi.GGUF_Q8_0:
        values, rest = _take(blocks, BLOCK_K)
        return np.ascontiguousarray(values).view(np.int8).astype(np.float32), rest
    found, rest = _take(blocks, BLOCK_K // 2)
    values = _bits(found, 4)
    if kind in FIFTH:
        high, rest = _take(rest, BLOCK_K // 8)
        values = values | _bits(high, 1) << np.uint8(4)
    if kind in UPPER:
        high, rest = _take(rest, BLOCK_K // 4)
        values = values | _bits(high, 2) << np.uint8(4)
    if kind == abi.GGUF_IQ4_NL:
        return CODEBOOK[values], rest
    if kind == abi.GGUF_MXFP4:
        return E2M1[values], rest
    return values.astype(np.float32) - np.float32(OFFSET.get(kind, 0)), rest


def _scaling(kind: int, rest: Bytes) -> tuple[F32, F32 | None]:
    """Scales and minima, FP32 [n, groups, 32]; None without minima."""
    if kind in PAIRS:
        return _of_pairs(rest)
    if kind == abi.GGUF_MXFP4:
        powers = _take(rest, 4)[0].astype(np.uint32) - np.uint32(1)
        return (powers << np.uint32(23)).view(np.float32), None
    if kind not in UPPER:
        d, rest = _halves(rest, 4)
        return d, -_halves(rest, 4)[0] if kind in (abi.GGUF_Q4_1, abi.GGUF_Q5_1) else None
    d, rest = _halves(rest, 1)
    scales, rest = _take(rest, 8)
    scale = d * np.ascontiguousarray(scales).view(np.int8).astype(np.float32)
    if kind == abi.GGUF_Q6_K:
        return scale, None
    dmin, rest = _halves(rest, 1)
    return scale, dmin * _take(rest, 8)[0].astype(np.float32)


def _of_pairs(rest: Bytes) -> tuple[F32, F32]:
    """Of blocks of which two have one d, in the first, and one dmin, in the second."""
    low, rest = _take(rest, 4)
    found, rest = _take(rest, 2)
    high = _bits(found, 4)  # of each group: two bits of a scale, two of a minimum
    shared = _halves(rest, 1)[0]
    d, dmin = np.repeat(shared[::2], 2, axis=0), np.repeat(shared[1::2], 2, axis=0)
    scale = d * (low & 15 | (high & 3) << np.uint8(4)).astype(np.float32)
    return scale, dmin * (low >> 4 | (high & 12) << np.uint8(2)).astype(np.float32)


def _take(raw: Bytes, rows: int) -> tuple[Bytes, Bytes]:
    """The first `rows` of 32 bytes, [n, rows, 32], and what is behind them."""
    return raw[:, : rows * BLOCK_N].reshape(len(raw), rows, BLOCK_N), raw[:, rows * BLOCK_N :]


def _halves(raw: Bytes, rows: int) -> tuple[F32, Bytes]:
    """FP16 [n, rows, 32] as FP32, and what is behind."""
    count = 2 * rows * BLOCK_N
    halves = np.ascontiguousarray(raw[:, :count]).view(np.float16)
    return halves.reshape(len(raw), rows, BLOCK_N).astype(np.float32), raw[:, count:]


def _bits(packed: Bytes, bits: int) -> Bytes:
    """Values of so many bits along K, the first in the lowest: [n, rows*8/bits, 32]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    found: Bytes = packed[:, :, None, :] >> shifts & np.uint8((1 << bits) - 1)
    return found.reshape(len(packed), -1, BLOCK_N)
