"""Weight blocks in NumPy (abi.h): the C packing must equal them bit for bit. Four weights along K
are one 32-bit word, so an INT8 or 4-bit block is a transposed array of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host import abi

Half = npt.NDArray[np.float16]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

BLOCK_K, BLOCK_N = abi.BLOCK_K, abi.BLOCK_N


def pack_blocks(columns: Half) -> Half:
    """FP16 [K, N] as weight blocks, FP16 [blocks, 128, 32], K fastest; padding is zero."""
    k, n = columns.shape
    rows, tiles = -(-k // BLOCK_K), -(-n // BLOCK_N)
    padded = np.zeros((rows * BLOCK_K, tiles * BLOCK_N), np.float16)
    padded[:k, :n] = columns
    blocks = padded.reshape(rows, BLOCK_K, tiles, BLOCK_N).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(blocks).reshape(rows * tiles, BLOCK_K, BLOCK_N)


def pack_int8(values: npt.NDArray[np.int8]) -> Bytes:
    """INT8 [N, K] as weight blocks, uint8 [blocks, 4096], K fastest; padding is zero."""
    words = _words(values.view(np.uint8), BLOCK_K)
    return _word_blocks(words, BLOCK_K // 4)


def pack_int4(values: Bytes, scales: Half, zeros: Bytes, group: int, block_bytes: int) -> Bytes:
    """4-bit weights [N, K] (a byte each) with scales and zero points [N, K/group] as weight blocks,
    uint8 [blocks, block_bytes]: values, scales, zero points; padding is zero."""
    n, k = values.shape
    tiles, rows, each = -(-n // BLOCK_N), -(-k // BLOCK_K), BLOCK_K // group
    blocks = np.zeros((tiles * rows, block_bytes), np.uint8)
    quads = _words(values, BLOCK_K)
    words = quads[:, 0::2] | quads[:, 1::2] << np.uint32(4)
    first = abi.BLOCK_BYTES_INT4
    second = first + each * BLOCK_N * 2
    blocks[:, :first] = _word_blocks(words, BLOCK_K // 8)
    laid = _group_blocks(scales, tiles, rows, each)
    blocks[:, first:second] = laid.view(np.uint8).reshape(len(blocks), -1)
    pairs = _group_blocks(zeros, tiles, rows, each)
    halves = pairs[..., 0::2] | pairs[..., 1::2] << np.uint8(4)
    blocks[:, second : second + each * BLOCK_N // 2] = halves.reshape(len(blocks), -1)
    return blocks


def _words(values: Bytes, step: int) -> Words:
    """Bytes [N, K] as words of four along K, padded with zeros to whole tiles and `step` rows."""
    n, k = values.shape
    tiles, rows = -(-n // BLOCK_N), -(-k // step)
    if n % BLOCK_N or k % step or not values.flags.c_contiguous:
        whole = np.zeros((tiles * BLOCK_N, rows * step), np.uint8)
        whole[:n, :k] = values
        values = whole
    return values.view(np.uint32)


def _word_blocks(words: Words, height: int) -> Bytes:
    """Words [N, rows] in blocks of `height` rows x 32, K fastest: uint8 [blocks, bytes]."""
    tiles = len(words) // BLOCK_N
    parts = words.reshape(tiles, BLOCK_N, -1, height).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(parts).reshape(-1, height * BLOCK_N).view(np.uint8)


def _group_blocks(values: npt.NDArray[Any], tiles: int, rows: int, each: int) -> npt.NDArray[Any]:
    """[N, groups] as [tiles, K blocks, `each` groups, 32]; padding is zero."""
    n, groups = values.shape
    whole = np.zeros((tiles * BLOCK_N, rows * each), values.dtype)
    whole[:n, :groups] = values
    laid = whole.reshape(tiles, BLOCK_N, rows, each).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(laid)
