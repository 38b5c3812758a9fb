"""The step block: header, KV operations, path, rows and input vectors as one run of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk.plan.tensors import FP16_BYTES, padded
from lora_sdk.step import KvOp, Row


def build_block(
    rows: Sequence[Row], kv_ops: Sequence[KvOp], path: Sequence[int], list_id: int, columns: int
) -> bytearray:
    """A block without step number and epoch, which the C host fills in.

    `columns`: width of a row's input vector. RequestError for a vector of another shape or type."""
    ops_offset = padded(abi.dtype("step").itemsize)
    path_offset = ops_offset + padded(len(kv_ops) * abi.dtype("kv_op").itemsize)
    rows_offset = path_offset + padded(len(path) * 2)
    vectors_offset = rows_offset + len(rows) * abi.dtype("row").itemsize
    vector_bytes = padded(columns * FP16_BYTES)
    vectors = sum(1 for row in rows if row.vector is not None)
    block = bytearray(vectors_offset + vectors * vector_bytes)
    _view(block, "step", 0, 1)[0] = _header(
        bytes=len(block),
        list_id=list_id,
        row_count=len(rows),
        rows_offset=rows_offset,
        kv_op_count=len(kv_ops),
        kv_ops_offset=ops_offset,
        path_count=len(path),
        path_offset=path_offset,
    )
    _fill_ops(_view(block, "kv_op", ops_offset, len(kv_ops)), kv_ops)
    np.frombuffer(block, np.uint16, len(path), path_offset)[:] = path
    _fill_rows(block, rows, rows_offset, vectors_offset, vector_bytes, columns)
    return block


def _view(block: bytearray, name: str, offset: int, count: int) -> Any:
    return np.frombuffer(block, abi.dtype(name), count, offset)


def _header(**values: int) -> Any:
    header = np.zeros((), abi.dtype("step"))
    header["size"], header["abi"] = abi.dtype("step").itemsize, abi.ABI_NUMBER
    for name, value in values.items():
        header[name] = value
    return header


def _fill_ops(target: Any, kv_ops: Sequence[KvOp]) -> None:
    for place, op in enumerate(kv_ops):
        for name in ("kind", "sequence", "a", "b", "c"):
            target[place][name] = getattr(op, name)


def _fill_rows(
    block: bytearray,
    rows: Sequence[Row],
    rows_offset: int,
    vector_offset: int,
    vector_bytes: int,
    columns: int,
) -> None:
    target = _view(block, "row", rows_offset, len(rows))
    for place, row in enumerate(rows):
        token, flags = row.token, row_flags(row)
        if row.vector is not None:
            token, flags = vector_offset, flags | abi.ROW_VECTOR
            _put_vector(block, vector_offset, row.vector, place, columns)
            vector_offset += vector_bytes
        values = (row.sequence, row.position, token, row.adapter, row.slot, row.parent, flags)
        names = ("sequence", "position", "token", "adapter", "slot", "parent", "flags")
        for name, value in zip(names, values, strict=True):
            target[place][name] = value


def row_flags(row: Row) -> int:
    """What the row wants back, as abi.h's flags."""
    flags = abi.ROW_WANT_LOGITS if row.want_logits else 0
    flags |= abi.ROW_WANT_ARGMAX if row.want_argmax else 0
    return flags | (abi.ROW_WANT_HIDDEN if row.want_hidden else 0)


def _put_vector(block: bytearray, offset: int, vector: Any, place: int, columns: int) -> None:
    if vector.shape != (columns,) or vector.dtype != np.float16:
        raise RequestError(
            f"row {place}: its vector is {vector.dtype} {list(vector.shape)}, expected float16 "
            f"[{columns}]"
        )
    np.frombuffer(block, np.float16, columns, offset)[:] = vector
