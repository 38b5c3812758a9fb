"""Memory test of boards. Every bank is written before any is read, so that aliased banks are found.
The board's own checksum and the bytes read by the host must both match."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster
from .bare import BareBoards

CONTROL_BYTES = 1 << 16  # the firmware uses the start of the control bank
_CHUNK = 4 << 20


@dataclass(frozen=True)
class BankResult:
    """Result for one bank. `fault`: "" if all bytes were right."""

    board: int
    bank: str
    bytes: int
    fault: str


def _chunks(size: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size, _CHUNK):
        yield offset, min(_CHUNK, size - offset)


def _pattern(board: int, bank: int, offset: int, size: int) -> npt.NDArray[np.uint8]:
    """Bytes that differ for every board, bank and offset."""
    seed = np.random.SeedSequence((board, bank, offset))
    return np.random.Generator(np.random.Philox(seed)).integers(0, 256, size, np.uint8)


def check_memory(cluster: Cluster, size: int) -> Iterator[BankResult]:
    """Tests `size` bytes of each bank of each board, or as much as the bank has, in whole lines of
    64 bytes. The cluster must have no reserved memory; the tested ranges stay reserved."""
    banks = cluster.overlay.board.banks
    starts: dict[int, int] = {b.index: 0 for b in banks}
    starts[cluster.overlay.control_bank] = CONTROL_BYTES
    sizes = {b.index: min(size, b.usable - starts[b.index]) // 64 * 64 for b in banks}
    for board in range(cluster.size):
        for bank in banks:
            cluster.reserve(board, bank.index, starts[bank.index] + sizes[bank.index])
            for offset, count in _chunks(sizes[bank.index]):
                data = _pattern(board, bank.index, offset, count)
                cluster.write(board, bank.index, starts[bank.index] + offset, data)
    for board in range(cluster.size):
        for bank in banks:
            fault = _read_back(cluster, board, bank.index, starts[bank.index], sizes[bank.index])
            yield BankResult(board, bank.name, sizes[bank.index], fault)


def check_bare_memory(boards: BareBoards, size: int) -> Iterator[BankResult]:
    """The same test for boards with any container, without checksums by the board: `size` bytes of
    each of its banks, written before any is read back."""
    sizes = [min(size, bank.usable) // 64 * 64 for bank in boards.banks]
    buffers: dict[tuple[int, int], int] = {}
    for index, board in enumerate(boards.boards):
        for bank, count in zip(boards.banks, sizes, strict=True):
            buffer = buffers[index, bank.memory] = board.buffer(bank.memory, count)
            for offset, chunk in _chunks(count):
                board.write(buffer, offset, _pattern(index, bank.memory, offset, chunk))
    for index, board in enumerate(boards.boards):
        for bank, count in zip(boards.banks, sizes, strict=True):
            fault = ""
            for offset, chunk in _chunks(count):
                found = board.read(buffers[index, bank.memory], offset, chunk)
                expected = _pattern(index, bank.memory, offset, chunk)
                fault = fault or _difference(found, expected, offset)
            yield BankResult(index, bank.name, count, fault)


def _difference(data: bytearray, expected: npt.NDArray[np.uint8], start: int) -> str:
    found = np.frombuffer(data, np.uint8)
    wrong = np.flatnonzero(found != expected)
    if not wrong.size:
        return ""
    at = int(wrong[0])
    return (
        f"{wrong.size} wrong bytes, the first at offset {start + at:#x}: "
        f"{found[at]:#04x} found, {expected[at]:#04x} expected"
    )


def _read_back(cluster: Cluster, board: int, bank: int, start: int, size: int) -> str:
    for offset, count in _chunks(size):
        expected = _pattern(board, bank, offset, count)
        found = cluster.read(board, bank, start + offset, count)
        fault = _difference(found, expected, start + offset)
        if fault:
            return fault
        crc = cluster.checksum(board, bank, start + offset, count)
        if crc != zlib.crc32(expected.tobytes()):
            return f"the board's checksum at offset {start + offset:#x} is wrong, the host's right"
    return ""
