"""Parts of a step: rows, made from tokens with their scratch slots, its block of header, KV
operations, path, rows and input vectors in one buffer, and its results."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.plan.tensors import FP16_BYTES, padded


@dataclass(frozen=True)
class Row:
    """One row of a step. `slot` and `parent` are scratch slots; `parent` -1 is the last committed
    position. `position` is the parent's + 1. `vector`, FP16 [embed_columns], replaces the embedding
    of `token`. `want_final`: the input of lm_head."""

    sequence: int
    position: int
    token: int
    slot: int
    parent: int = -1
    adapter: int = -1
    want_logits: bool = False
    want_argmax: bool = False
    want_hidden: bool = False
    want_final: bool = False
    vector: npt.NDArray[np.float16] | None = None

    @property
    def selected(self) -> bool:
        """Whether lm_head works on this row."""
        return self.want_logits or self.want_argmax or self.want_final


@dataclass(frozen=True)
class StepResult:
    """Results of a step. V is the vocabulary, d the model's width.

    `step`: the step's number. `rows`: indices in the step of the selected rows (want_logits,
    want_argmax or want_final). `logits`: float32 [len(rows), V], if any row requests them.
    `argmax`: (float32 values, uint32 ids), one per selected row, if any row requests it. `hidden`:
    float16 [taps, len(hidden_rows), d] of the rows `hidden_rows` that request it. `final`: float16
    [len(rows), embed_dim], the inputs of lm_head, if any row requests them. `completions`: one
    `struct lora_completion` per board."""

    step: int
    rows: tuple[int, ...]
    logits: npt.NDArray[np.float32] | None
    argmax: tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]] | None
    hidden: npt.NDArray[np.float16] | None
    hidden_rows: tuple[int, ...]
    completions: npt.NDArray[np.void]
    final: npt.NDArray[np.float16] | None = None


def selected_rows(rows: Sequence[Row]) -> tuple[int, ...]:
    """Indices of the rows that lm_head works on, in row order."""
    return tuple([index for index, row in enumerate(rows) if row.selected])


def joined(results: Sequence[StepResult], sizes: Sequence[int]) -> StepResult:
    """The result of one step whose rows ran as several, of `sizes` rows each. Logits, argmax and
    final states of rows that did not request them are 0 if others did."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    each = list(zip(starts, results, strict=True))
    hidden = [one.hidden for one in results if one.hidden is not None]
    values = _joined([(None if r.argmax is None else r.argmax[0], len(r.rows)) for r in results])
    tokens = _joined([(None if r.argmax is None else r.argmax[1], len(r.rows)) for r in results])
    return StepResult(
        step=results[-1].step,
        rows=tuple(start + row for start, one in each for row in one.rows),
        logits=_joined([(one.logits, len(one.rows)) for one in results]),
        argmax=None if values is None or tokens is None else (values, tokens),
        hidden=np.concatenate(hidden, axis=1) if hidden else None,
        hidden_rows=tuple(start + row for start, one in each for row in one.hidden_rows),
        completions=results[-1].completions,
        final=_joined([(one.final, len(one.rows)) for one in results]),
    )


def _joined(parts: Sequence[tuple[npt.NDArray[Any] | None, int]]) -> npt.NDArray[Any] | None:
    """Arrays of these numbers of rows one after another; None if all are."""
    known = next((array for array, _ in parts if array is not None), None)
    if known is None:
        return None
    return np.concatenate(
        [
            np.zeros((count, *known.shape[1:]), known.dtype) if array is None else array
            for array, count in parts
        ]
    )


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


def build_rows(
    cache: KvCache,
    sequence: int,
    tokens: Sequence[int],
    parents: Sequence[int] | None = None,
    *,
    after: int = -1,
    logits: Collection[int] = (),
    argmax: Collection[int] = (),
    hidden: Collection[int] = (),
    final: Collection[int] = (),
) -> list[Row]:
    """Rows of one sequence after its last committed position, or after the row in slot `after`.

    `parents[i]` is an index into `tokens` below i, or -1 for a root; None makes a chain. `logits`,
    `argmax`, `hidden` and `final` are indices of the rows that return them. Takes scratch
    slots: run the rows, or return the slots with `cache.release_slots`.
    """
    if parents is None:
        parents = range(-1, len(tokens) - 1)
    else:
        parents = list(parents)
        _check_tree(tokens, parents)
    first = cache.length(sequence)
    if after >= 0:
        cache.check_parent(sequence, after)
        known = cache.uncommitted(sequence)
        if after not in known:
            raise RequestError(f"slot {after} holds no uncommitted row of sequence {sequence}")
        first = known[after].position + 1
    positions: list[int] = []
    for parent in parents:
        positions.append(first if parent < 0 else positions[parent] + 1)
    if positions and max(positions) >= cache.context:
        raise RequestError(
            f"sequence {sequence} would reach position {max(positions)}; the context has "
            f"{cache.context} positions"
        )
    slots = cache.take_slots(len(tokens))
    return [
        Row(
            sequence,
            positions[i],
            int(token),
            slots[i],
            after if parents[i] < 0 else slots[parents[i]],
            want_logits=i in logits,
            want_argmax=i in argmax,
            want_hidden=i in hidden,
            want_final=i in final,
        )
        for i, token in enumerate(tokens)
    ]


def check_rows(cache: KvCache, rows: Sequence[Row], row_limit: int, vocabulary: int) -> None:
    """RequestError if a row's position, parent, slot or token contradicts the cache."""
    if len(rows) > row_limit:
        raise RequestError(f"{len(rows)} rows in a step; the overlay takes at most {row_limit}")
    positions: dict[tuple[int, int], int] = {}
    used: set[int] = set()
    for index, row in enumerate(rows):
        if not isinstance(row, Row):
            raise RequestError(f"row {index} is {row!r:.100}; expected a Row, as rows() returns")
        known = cache.uncommitted(row.sequence)
        key = (row.sequence, row.parent)
        if row.parent == -1:
            expected = cache.length(row.sequence)
        elif key in positions:
            expected = positions[key] + 1
        elif row.parent in known:
            expected = known[row.parent].position + 1
        else:
            cache.check_parent(row.sequence, row.parent)
            raise RequestError(
                f"row {index}: parent slot {row.parent} is no uncommitted row of sequence "
                f"{row.sequence} nor an earlier row of this step"
            )
        if row.position != expected or row.position >= cache.context:
            raise RequestError(
                f"row {index}: position {row.position}; expected {expected}, below {cache.context}"
            )
        if row.slot in used or not cache.is_taken(row.slot):
            raise RequestError(f"row {index}: slot {row.slot} was not taken for it")
        if row.vector is None and not 0 <= row.token < vocabulary:
            raise RequestError(f"row {index}: token {row.token}; expected 0..{vocabulary - 1}")
        used.add(row.slot)
        positions[(row.sequence, row.slot)] = row.position


def _check_tree(tokens: Sequence[int], parents: Sequence[int]) -> None:
    if len(tokens) != len(parents):
        raise RequestError(
            f"{len(tokens)} tokens and {len(parents)} parents; expected one per token"
        )
    for index, parent in enumerate(parents):
        if not -1 <= parent < index:
            raise RequestError(
                f"parent of node {index} is {parent}; expected -1 or a node before it"
            )
