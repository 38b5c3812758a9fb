"""What a vector operation makes the vector unit of overlays/rtl do: how often, by name.

`row`; `group`, a head; `segment`, of docs/numbers.md, 2.1; `chunk`, of at most 32 columns;
`element`, one that is folded into a sum or a maximum, or looked up."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

from lora_host import abi
from lora_sdk.compile.isa import Vector

CHUNK = 32
SEGMENT_SUMS = frozenset({abi.VEC_LN_SUMS, abi.VEC_RMS_SUMS})
ROW_FOLDS = frozenset({abi.VEC_ARGMAX, abi.VEC_ROW_MAX})
RECORD_FOLDS = frozenset({abi.VEC_RMS_ROW, abi.VEC_QUANTIZE_ROW})
HEAD_SUMS = frozenset({abi.VEC_RMS_HEADS, abi.VEC_HEAD_SUMS})

Counts = dict[str, float]


def segments(width: int, first: int = 0, columns: int | None = None) -> list[int]:
    """Columns of each segment of a row of `width` that is not empty and lies in `columns` from
    `first` on."""
    units, end = ceil(width / CHUNK), first + (width if columns is None else columns)
    bounds = [min(width, CHUNK * (s * units >> 3)) for s in range(abi.SEGMENTS + 1)]
    return [
        high - low for low, high in pairwise(bounds) if low < high and first <= low and high <= end
    ]


def vector_counts(command: Vector, rows: int, head_dim: int) -> Counts:
    """Of a command on `rows` rows; `head_dim` of the list."""
    return {"command": 1, **{name: rows * of for name, of in _of_row(command, head_dim).items()}}


def _of_row(command: Vector, head_dim: int) -> Counts:
    op, columns, extra = command.op, command.columns, command.extra
    chunks = ceil(columns / CHUNK)
    if op in SEGMENT_SUMS:
        found = segments(extra, command.first, columns)
        return {"row": 1, "segment": len(found), "chunk": _chunks(found), "element": columns}
    if op == abi.VEC_ROPE:
        heads = columns // extra
        return {"row": 1, "group": heads, "chunk": heads * ceil(extra / 2 / CHUNK),
                "shared": _shared(heads, extra * 2)}  # fmt: skip
    if op == abi.VEC_QUANTIZE_HEADS:
        heads = columns // extra
        return {"row": 1, "group": heads, "chunk": heads * ceil(extra / CHUNK), "element": columns}
    if op in HEAD_SUMS:
        width = extra if op == abi.VEC_RMS_HEADS else command.b_line or head_dim
        heads, found = columns // width, segments(width)
        return {"row": 1, "group": heads, "segment": heads * len(found),
                "chunk": heads * _chunks(found), "element": columns}  # fmt: skip
    if op in RECORD_FOLDS:
        own = 0 if command.flags & abi.FLAG_ONE_PLUS else command.b_line
        records = extra if op == abi.VEC_QUANTIZE_ROW else extra // (own or head_dim)
        return {"row": 1, "chunk": chunks, "element": records}
    if op in ROW_FOLDS or op == abi.VEC_PERMUTE:
        return {"row": 1, "chunk": chunks, "element": columns}
    return {"row": 1, "chunk": chunks}


def _chunks(widths: list[int]) -> int:
    return sum(ceil(width / CHUNK) for width in widths)


def _shared(heads: int, size: int) -> int:
    """Heads of `size` bytes that begin within a line that the one before has written."""
    return sum(head * size % abi.LINE_BYTES != 0 for head in range(heads))
