"""Tensors of a checkpoint on their way to board memory: what lora_cluster_place is told."""

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

BUFFER_BYTES = 2 << 20  # a thread's: in its caches, long pieces of the file's rows and of banks
AXES = ("io", "oi")
_SOURCES = {"F16": "LORA_SOURCE_F16", "BF16": "LORA_SOURCE_BF16", "F32": "LORA_SOURCE_F32"}


@dataclass(frozen=True)
class PackPart:
    """Outputs first .. first+count-1 of a file's tensor `data`, C order: [inputs, outputs] where
    `axes` is "io" (also tables and vectors), [outputs, inputs] where "oi". `kind`: "F16", "BF16"
    (as uint16) or "F32"; `name` is for messages."""

    name: str
    data: npt.NDArray[Any]
    kind: str
    axes: str
    first: int
    count: int


@dataclass(frozen=True)
class PackTask:
    """A part of a matrix [k, n] in weight blocks (abi.h), or, with `row_bytes`, of a table [k, n]
    of padded rows: column tiles, or rows, first .. first+count-1. `offset` is the whole's in its
    banks, bytes; `request` the matrix's first request in the running number over its banks."""

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
    return array, kept


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
        start += len(task.parts)
    return array


def pack_parts(parts: Sequence[PackPart], k: int) -> npt.NDArray[np.float16]:
    """Parts side by side, a matrix [k, n], as weight blocks: FP16 [blocks, 128, 32], K fastest.

    ModelError names the first weight that FP16 cannot hold; RequestError: parts that do not fit."""
    ffi = native.ffi()
    n = sum(part.count for part in parts)
    blocks = -(-k // abi.BLOCK_K) * -(-n // abi.BLOCK_N)
    packed = np.empty((blocks, abi.BLOCK_K, abi.BLOCK_N), np.float16)
    array, _kept = part_array(parts)
    failure = ffi.new("struct lora_failure *")
    place = ffi.from_buffer("uint8_t[]", packed.reshape(-1).view(np.uint8), require_writable=True)
    if native.lib().lora_pack_blocks(array, len(parts), k, n, place, packed.nbytes, failure):
        raise to_error(failure)
    return packed
