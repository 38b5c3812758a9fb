"""The step block: header, KV operations, path, rows and input vectors in one buffer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk.kv.kv_op import KvOp
from lora_sdk.plan.tensors import FP16_BYTES, padded
from lora_sdk.step.step import Row

_STEP = (
    *("size", "abi", "bytes", "list_id", "step", "epoch", "row_count", "rows_offset"),
    *("kv_op_count", "kv_ops_offset", "path_count", "path_offset", "generate_offset"),
)
_CODES = {"<u2": "H", "<u4": "I", "<i4": "i"}


def build_block(
    rows: Sequence[Row], kv_ops: Sequence[KvOp], path: Sequence[int], list_id: int, columns: int
) -> bytearray:
    """A block without step number and epoch, which the C host fills in.

    `columns`: width of a row's input vector. RequestError: a vector of another shape or type."""
    vectors = 0
    for row in rows:
        vectors += row.vector is not None
    ops_offset, path_offset, rows_offset, vectors_offset, vector_bytes = _layout(
        len(kv_ops), len(path), len(rows), columns
    )
    block = bytearray(vectors_offset + vectors * vector_bytes)
    packer, names = _packer("step")
    assert names == _STEP
    size = abi.dtype("step").itemsize
    packer.pack_into(
        block, 0, size, abi.ABI_NUMBER, len(block), list_id, 0, 0, len(rows), rows_offset,
        len(kv_ops), ops_offset, len(path), path_offset, 0,
    )  # fmt: skip
    _fill_ops(block, ops_offset, kv_ops)
    np.frombuffer(block, np.uint16, len(path), path_offset)[:] = path
    _fill_rows(block, rows, rows_offset, vectors_offset, vector_bytes, columns)
    return block


@lru_cache(maxsize=1024)
def _layout(ops: int, path: int, rows: int, columns: int) -> tuple[int, int, int, int, int]:
    """Offsets of KV operations, path, rows and vectors, and the bytes of a vector."""
    ops_offset = padded(abi.dtype("step").itemsize)
    path_offset = ops_offset + padded(ops * abi.dtype("kv_op").itemsize)
    rows_offset = path_offset + padded(path * 2)
    vectors_offset = rows_offset + rows * abi.dtype("row").itemsize
    return ops_offset, path_offset, rows_offset, vectors_offset, padded(columns * FP16_BYTES)


@cache
def _packer(name: str) -> tuple[struct.Struct, tuple[str, ...]]:
    """A packer of a structure of abi.h, and its fields in order. It is several times as fast as a
    NumPy record, and every step needs it. Reserved fields and gaps stay zero."""
    dtype = abi.dtype(name)
    fields = {field: (offset, kind) for field, (kind, offset, *_) in (dtype.fields or {}).items()}
    parts, names, end = ["<"], [], 0
    for field, (offset, kind) in sorted(fields.items(), key=lambda item: item[1][0]):
        if kind.shape:
            continue
        parts.append(f"{offset - end}x{_CODES[kind.str]}")
        names.append(field)
        end = offset + kind.itemsize
    return struct.Struct("".join(parts)), tuple(names)


def _fill_ops(block: bytearray, offset: int, kv_ops: Sequence[KvOp]) -> None:
    packer, names = _packer("kv_op")
    size = abi.dtype("kv_op").itemsize
    assert names == ("kind", "sequence", "a", "b", "c")
    for index, op in enumerate(kv_ops):
        packer.pack_into(block, offset + index * size, op.kind, op.sequence, op.a, op.b, op.c)


def _fill_rows(
    block: bytearray,
    rows: Sequence[Row],
    rows_offset: int,
    vector_offset: int,
    vector_bytes: int,
    columns: int,
) -> None:
    packer, names = _packer("row")
    assert names == ("sequence", "position", "token", "adapter", "slot", "parent", "flags")
    size = abi.dtype("row").itemsize
    for index, row in enumerate(rows):
        token, flags = row.token, row_flags(row)
        if row.vector is not None:
            token, flags = vector_offset, flags | abi.ROW_VECTOR
            _put_vector(block, vector_offset, row.vector, index, columns)
            vector_offset += vector_bytes
        values = (row.sequence, row.position, token, row.adapter, row.slot, row.parent, flags)
        packer.pack_into(block, rows_offset + index * size, *values)


def row_flags(row: Row) -> int:
    """The results that the row requests, as abi.h's flags. A row is selected by one of two."""
    return _flag_table()[
        row.want_logits + 2 * (row.want_argmax or row.want_final) + 4 * row.want_hidden
    ]


@cache
def _flag_table() -> tuple[int, ...]:
    flags = (abi.ROW_WANT_LOGITS, abi.ROW_WANT_ARGMAX, abi.ROW_WANT_HIDDEN)
    return tuple(sum(f for bit, f in enumerate(flags) if n >> bit & 1) for n in range(8))


def _put_vector(block: bytearray, offset: int, vector: Any, index: int, columns: int) -> None:
    if vector.shape != (columns,) or vector.dtype != np.float16:
        raise RequestError(
            f"row {index}: its vector is {vector.dtype} {list(vector.shape)}, expected float16 "
            f"[{columns}]"
        )
    np.frombuffer(block, np.float16, columns, offset)[:] = vector
