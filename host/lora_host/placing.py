"""Packs a checkpoint's tensors into board memory: the arguments of lora_cluster_place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import abi, native
from .errors import RequestError
from .failure import to_error

Bytes = npt.NDArray[np.uint8]

BUFFER_BYTES = 2 << 20  # per thread: fits its caches, with long runs of file rows and banks
AXES = ("io", "oi")
BLOCK_SOURCES = (
    "Q4_0", "IQ4_NL", "Q5_0", "Q8_0", "Q4_1", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "MXFP4",
)  # fmt: skip
"""Types of GGUF's blocks that are packed as a file has them."""
_SOURCES = {
    "F16": "LORA_SOURCE_F16",
    "BF16": "LORA_SOURCE_BF16",
    "F32": "LORA_SOURCE_F32",
    "I8": "LORA_SOURCE_I8",
    "nibbles": "LORA_SOURCE_NIBBLES",
    "words": "LORA_SOURCE_WORDS",
    "awq": "LORA_SOURCE_AWQ",
    **{name: f"LORA_SOURCE_{name}" for name in BLOCK_SOURCES},
}


@dataclass(frozen=True)
class PackPart:
    """Outputs first .. first+count-1 of a file's tensor `data`, C order: [inputs, outputs] where
    `axes` is "io" (also tables and vectors), [outputs, inputs] where "oi". `name` is for messages.

    `kind` of FP16 blocks and tables: "F16", "BF16" (as uint16) or "F32"; of INT8 blocks: "I8"; of
    4-bit blocks: "nibbles" (uint8, a byte each), "words" (32 bits, eight inputs a word, lowest bits
    first) or "awq" (32 bits, eight outputs a word in AWQ's order). These have `scales` FP16 and
    `zeros` uint8, both [count, K/group], and `order`, uint32 [K], which input of the file lies at
    each of the K (None: in the file's order). Of GGUF's blocks and tables:
    one of BLOCK_SOURCES, with `data` uint8 [rows, bytes of a row]; "oi", of tables "io"."""

    name: str
    data: npt.NDArray[Any]
    kind: str
    axes: str
    first: int
    count: int
    scales: npt.NDArray[np.float16] | None = None
    zeros: npt.NDArray[np.uint8] | None = None
    order: npt.NDArray[np.uint32] | None = None


@dataclass(frozen=True)
class PackTask:
    """A part of a matrix [k, n] in weight blocks (abi.h) of a matrix command's `weight_type` (None:
    FP16), or, with `row_bytes`, of a table [k, n] of padded rows: column tiles, or rows, first ..
    first+count-1. `offset` is the whole's in its banks, bytes; `request` the matrix's first request
    in the running number over its banks; `parts` are all columns, or some that
    the tiles need, from `column` on."""

    board: int
    parts: tuple[PackPart, ...]
    k: int
    n: int
    first: int
    count: int
    bank: int
    offset: int
    bank_count: int = 1
    merge: int = 1
    request: int = 0
    row_bytes: int = 0
    weight_type: int | None = None
    column: int | None = None

    @property
    def unit_bytes(self) -> int:
        """Bytes that a thread's buffer must hold at least."""
        if self.row_bytes:
            return self.row_bytes
        return (-(-self.k // abi.BLOCK_K) + self.merge - 1) * abi.BLOCK_BYTES_FP16


@dataclass
class Range:
    """Bytes of one bank that loading wrote without a gap, and their CRC-32."""

    board: int
    bank: int
    offset: int
    bytes: int
    crc: int

    def join(self, other: Range) -> bool:
        """Takes in the range that begins where this one ends; False where `other` does not."""
        if (self.board, self.bank, self.offset + self.bytes) != (
            other.board,
            other.bank,
            other.offset,
        ):
            return False
        self.crc = int(native.lib().lora_crc32_combine(self.crc, other.crc, other.bytes))
        self.bytes += other.bytes
        return True


class Scratch:
    """Buffers of the threads that pack, used again for every call: fresh pages cost as much as the
    copying. `threads`: None for one a core that this process may use."""

    def __init__(self, threads: int | None = None) -> None:
        available = len(os.sched_getaffinity(0))
        self.threads = max(1, min(threads or available, int(native.lib().LORA_PACK_THREADS)))
        self._memory: Bytes = np.empty(0, np.uint8)

    def memory(self, tasks: Sequence[PackTask]) -> Bytes:
        """Line-aligned memory for all threads, enough for these tasks."""
        each = max(BUFFER_BYTES, *(task.unit_bytes for task in tasks))
        each = -(-each // abi.LINE_BYTES) * abi.LINE_BYTES
        if self._memory.nbytes < each * self.threads:
            self._memory = aligned(each * self.threads)
        return self._memory


def crc32(data: Bytes) -> int:
    """CRC-32 of contiguous bytes, as zlib's and several times as fast."""
    raw = native.ffi().from_buffer("uint8_t[]", data)
    return int(native.lib().lora_crc32(0, raw, data.nbytes))


def aligned(count: int) -> Bytes:
    """`count` bytes that begin on a line."""
    memory = np.empty(count + abi.LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % abi.LINE_BYTES
    return memory[start : start + count]


class Placing:
    """`struct lora_placing` of some tasks, and everything that it points to."""

    def __init__(self, tasks: Sequence[PackTask], scratch: Scratch) -> None:
        ffi = native.ffi()
        memory = scratch.memory(tasks)
        room = sum(task.bank_count for task in tasks)
        self._parts, self._kept = part_array([part for task in tasks for part in task.parts])
        self._tasks = _task_array(tasks)
        self._ranges = ffi.new("struct lora_range[]", max(1, room))
        self._scratch = ffi.from_buffer("uint8_t[]", memory, require_writable=True)
        self.record = ffi.new("struct lora_placing *")
        self.record.size = ffi.sizeof("struct lora_placing")
        self.record.threads = scratch.threads
        self.record.parts, self.record.part_count = self._parts, len(self._parts)
        self.record.tasks, self.record.task_count = self._tasks, len(tasks)
        self.record.ranges, self.record.range_capacity = self._ranges, room
        self.record.scratch, self.record.scratch_bytes = self._scratch, memory.nbytes

    @property
    def ranges(self) -> list[Range]:
        """What was written, by board, bank and offset."""
        found = self._ranges[0 : self.record.range_count]
        return [Range(r.board, r.bank, r.offset, r.bytes, r.crc) for r in found]


def part_array(parts: Sequence[PackPart]) -> tuple[Any, list[Any]]:
    """`struct lora_pack_part[]`, and what must live as long as it."""
    ffi = native.ffi()
    array = ffi.new("struct lora_pack_part[]", len(parts))
    kept: list[Any] = []
    for record, part in zip(array, parts, strict=True):
        name, data = ffi.new("char[]", part.name.encode()), _raw(part)
        kept += (name, data)
        record.name, record.data, record.bytes = name, data, len(data)
        record.rows, record.columns = (1, *part.data.shape)[-2:]
        record.first, record.count = part.first, part.count
        record.element = getattr(native.lib(), _SOURCES[part.kind])
        record.axes = AXES.index(part.axes)
        if part.scales is not None and part.zeros is not None:
            scales = _typed("uint16_t[]", part.scales, np.float16, kept)
            zeros = _typed("uint8_t[]", part.zeros, np.uint8, kept)
            record.scales, record.scale_bytes = scales, part.scales.nbytes
            record.zeros, record.zero_bytes = zeros, part.zeros.nbytes
        if part.order is not None:
            record.order = _typed("uint32_t[]", part.order, np.uint32, kept)
            record.order_bytes = part.order.nbytes
    return array, kept


def _typed(kind: str, values: npt.NDArray[Any], expected: type[np.generic], kept: list[Any]) -> Any:
    """A pointer to contiguous values, which live as long as `kept`."""
    held = np.ascontiguousarray(values, expected)
    kept.append(native.ffi().from_buffer(kind, held.reshape(-1)))
    return kept[-1]


def _raw(part: PackPart) -> Any:
    if part.data.ndim not in (1, 2) or not part.data.flags.c_contiguous:
        raise RequestError(
            f"{part.name}: an array of shape {list(part.data.shape)}; expected one or two axes, "
            "in C order"
        )
    return native.ffi().from_buffer(part.data.reshape(-1).view(np.uint8))


def _task_array(tasks: Sequence[PackTask]) -> Any:
    ffi, lib = native.ffi(), native.lib()
    array = ffi.new("struct lora_pack_task[]", len(tasks))
    start = 0
    for record, task in zip(array, tasks, strict=True):
        record.kind = lib.LORA_PACK_TABLE if task.row_bytes else lib.LORA_PACK_MATRIX
        record.board, record.k, record.n = task.board, task.k, task.n
        record.part_first, record.part_count = start, len(task.parts)
        record.first, record.count = task.first, task.count
        record.bank, record.bank_count, record.offset = task.bank, task.bank_count, task.offset
        record.merge, record.request_first = task.merge, task.request
        record.row_bytes = task.row_bytes
        record.partial, record.column_first = task.column is not None, task.column or 0
        record.weight_type = abi.WEIGHT_FP16 if task.weight_type is None else task.weight_type
        start += len(task.parts)
    return array


def pack_parts(parts: Sequence[PackPart], k: int, weight_type: int | None = None) -> Bytes:
    """Parts side by side, a matrix [k, n], as weight blocks of `weight_type` (None: FP16), K
    fastest: uint8 [blocks, bytes].

    ModelError names the first weight that FP16 cannot hold; RequestError: parts that do not fit."""
    ffi, lib = native.ffi(), native.lib()
    n = sum(part.count for part in parts)
    weights = abi.WEIGHT_FP16 if weight_type is None else weight_type
    blocks = -(-k // abi.BLOCK_K) * -(-n // abi.BLOCK_N)
    packed = np.empty((blocks, int(lib.lora_pack_block_bytes(weights))), np.uint8)
    array, _kept = part_array(parts)
    failure = ffi.new("struct lora_failure *")
    target = ffi.from_buffer("uint8_t[]", packed.reshape(-1), require_writable=True)
    if lib.lora_pack_blocks(array, len(parts), k, n, weights, target, packed.nbytes, failure):
        raise to_error(failure)
    return packed
