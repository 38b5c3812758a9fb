"""XRT's calls to a device process, by number, executed on an emulated board."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from ..alveo_container import register_bases
from ..errors import TransportError
from ..regular_file import read_regular
from .board import EmulatedBoard
from .wire import MAX_MESSAGE, Value, data, number

Fields = Mapping[int, "int | memoryview"]
Answer = dict[int, Value]

_WORD = struct.Struct("<I")
CLOSE, LOAD, ALLOCATE, FREE, TO_DEVICE, FROM_DEVICE = 1, 3, 4, 5, 6, 7
BITSTREAM_PATH = 2  # field of LOAD: a copy of the container's BITSTREAM section
WRITE_KERNEL, READ_KERNEL, SETUP, REGISTER_WRITE, REGISTER_READ = 9, 11, 28, 51, 52


def is_last(call: int, fields: Fields) -> bool:
    """Whether the host closes the device. A close before a load does not."""
    return call == CLOSE and number(fields, 3) != 0


def _close(_board: EmulatedBoard, _fields: Fields) -> Answer:
    return {1: 1}


def _load(board: EmulatedBoard, fields: Fields) -> Answer:
    path = os.fsdecode(bytes(data(fields, BITSTREAM_PATH)))
    try:
        content = read_regular(Path(path), MAX_MESSAGE)
    except OSError as cause:
        raise TransportError(f"{path}: bitstream cannot be read: {cause.strerror}") from cause
    board.program(register_bases(content))
    return {1: 1}


def _setup(_board: EmulatedBoard, _fields: Fields) -> Answer:
    return {1: 1}


def _allocate(board: EmulatedBoard, fields: Fields) -> Answer:
    # No file name: host and device copies stay separate, so a missing sync is detected.
    return {1: int(board.allocate(number(fields, 1), number(fields, 2))), 2: b""}


def _free(board: EmulatedBoard, fields: Fields) -> Answer:
    return {1: int(board.free(number(fields, 1)))}


def _to_device(board: EmulatedBoard, fields: Fields) -> Answer:
    size = number(fields, 5)
    board.write(number(fields, 3), data(fields, 4)[:size])
    return {1: size}


def _from_device(board: EmulatedBoard, fields: Fields) -> Answer:
    size = _read_size(fields)
    return {1: size, 2: board.read(number(fields, 4), size)}


def _read_size(fields: Fields) -> int:
    size = number(fields, 5)
    if size > MAX_MESSAGE:
        raise TransportError(f"a read of {size} B found, at most {MAX_MESSAGE} B expected")
    return size


def _write_kernel(board: EmulatedBoard, fields: Fields) -> Answer:
    """A kernel run by the XRT runtime: the register map of one kernel."""
    base, content = number(fields, 2), data(fields, 4)
    for offset in range(0x10, len(content) - 3, 4):
        board.register_write(base, offset, _WORD.unpack_from(content, offset)[0])
    if len(content) >= 4 and _WORD.unpack_from(content)[0] & 1:
        board.register_write(base, 0, 1)
    return {1: 1}


def _read_kernel(board: EmulatedBoard, fields: Fields) -> Answer:
    value = board.register_read(number(fields, 2), 0)
    return {1: 1, 2: _WORD.pack(value)}


def _register_write(board: EmulatedBoard, fields: Fields) -> Answer:
    value = int(_WORD.unpack(bytes(data(fields, 3)[:4]).ljust(4, b"\0"))[0])
    board.register_write(number(fields, 1), number(fields, 2), value)
    return {1: 1}


def _register_read(board: EmulatedBoard, fields: Fields) -> Answer:
    return {1: 1, 2: _WORD.pack(board.register_read(number(fields, 1), number(fields, 2)))}


CALLS: dict[int, Callable[[EmulatedBoard, Fields], Answer]] = {
    CLOSE: _close,
    LOAD: _load,
    ALLOCATE: _allocate,
    FREE: _free,
    TO_DEVICE: _to_device,
    FROM_DEVICE: _from_device,
    WRITE_KERNEL: _write_kernel,
    READ_KERNEL: _read_kernel,
    SETUP: _setup,
    REGISTER_WRITE: _register_write,
    REGISTER_READ: _register_read,
}
"""By number of the call. Others are not supported."""

ACCESSES = {
    TO_DEVICE: "memory_writes",
    FROM_DEVICE: "memory_reads",
    WRITE_KERNEL: "register_writes",
    READ_KERNEL: "register_reads",
    REGISTER_WRITE: "register_writes",
    REGISTER_READ: "register_reads",
}
"""The calls that are accesses to the board, by what they are."""

_ALL_ONES = b"\xff\xff\xff\xff"


def answer_gone(call: int, fields: Fields) -> Answer:
    """The answer of a card that has left the bus: reads return all ones, writes have no effect. XRT
    would end its whole process if the connection were closed instead."""
    if call == CLOSE:
        return {1: 1}
    if call in (REGISTER_READ, READ_KERNEL):
        return {1: 1, 2: _ALL_ONES}
    if call == FROM_DEVICE:
        size = _read_size(fields)
        return {1: size, 2: b"\xff" * size}
    return FAILED


FAILED: Answer = {1: 0, 2: b""}
"""The answer of a failed call: not valid, not acknowledged, 0 bytes transferred."""
