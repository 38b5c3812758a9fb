"""Tensors as the bytes that boards read: weight blocks and padded table rows (abi.h).

`pack_blocks` and `pack_rows` spell the layout; loading packs in C (csrc/src/pack_*.c), which equals
them bit for bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lora_host import abi

Half = npt.NDArray[np.float16]
Bytes = npt.NDArray[np.uint8]


def pack_blocks(columns: Half) -> Half:
    """FP16 [K, N] as weight blocks, FP16 [blocks, 128, 32], K fastest; what is padded is zero."""
    k, n = columns.shape
    block_k, block_n = abi.BLOCK_K, abi.BLOCK_N
    rows, tiles = -(-k // block_k), -(-n // block_n)
    padded = np.zeros((rows * block_k, tiles * block_n), np.float16)
    padded[:k, :n] = columns
    blocks = padded.reshape(rows, block_k, tiles, block_n).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(blocks).reshape(rows * tiles, block_k, block_n)


def pack_rows(values: npt.NDArray[np.generic], row_bytes: int) -> Bytes:
    """A table [rows, columns], each row padded by zeros: uint8 [rows, row_bytes]."""
    rows, columns = values.shape
    packed = np.zeros((rows, row_bytes), np.uint8)
    packed[:, : columns * values.itemsize] = np.ascontiguousarray(values).view(np.uint8)
    return packed
