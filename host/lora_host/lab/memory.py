"""Memory test of boards: every bank is written before any is read, so that banks that alias are
found; the board's own checksum and what comes back to the host must both be right."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster
from .bare import BareBoards

CONTROL_BYTES = 1 << 16  # the control bank's head is the firmware's
_CHUNK = 4 << 20


@dataclass(frozen=True)
class BankResult:
    """A bank's test. `fault` is "" where all bytes were right."""

    board: int
    bank: str
    bytes: int
    fault: str


def _chunks(size: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size, _CHUNK):
        yield offset, min(_CHUNK, size - offset)


def _pattern(board: int, bank: int, offset: int, size: int) -> npt.NDArray[np.uint8]:
    """Bytes that differ for every board, bank and place."""
    seed = np.random.SeedSequence((board, bank, offset))
    return np.random.Generator(np.random.Philox(seed)).integers(0, 256, size, np.uint8)


def check_memory(cluster: Cluster, size: int) -> Iterator[BankResult]:
    """Tests `size` bytes of each bank of each board (whole lines of 64 bytes; as much as a bank
    has). The cluster must have reserved nothing; what is reserved here stays reserved."""
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
    """The same test for boards with any container, as far as the host alone can: `size` bytes of
    each of its banks, written before any is read back. The boards have no sum of their own."""
    sizes = [min(size, bank.usable) // 64 * 64 for bank in boards.banks]
    buffers: dict[tuple[int, int], int] = {}
    for place, board in enumerate(boards.boards):
        for bank, count in zip(boards.banks, sizes, strict=True):
            buffer = buffers[place, bank.memory] = board.buffer(bank.memory, count)
            for offset, chunk in _chunks(count):
                board.write(buffer, offset, _pattern(place, bank.memory, offset, chunk))
    for place, board in enumerate(boards.boards):
        for bank, count in zip(boards.banks, sizes, strict=True):
            fault = ""
            for offset, chunk in _chunks(count):
                found = board.read(buffers[place, bank.memory], offset, chunk)
                wanted = _pattern(place, bank.memory, offset, chunk)
                fault = fault or _difference(found, wanted, offset)
            yield BankResult(place, bank.name, count, fault)


def _difference(data: bytearray, wanted: npt.NDArray[np.uint8], start: int) -> str:
    found = np.frombuffer(data, np.uint8)
    wrong = np.flatnonzero(found != wanted)
    if not wrong.size:
        return ""
    at = int(wrong[0])
    return (
        f"{wrong.size} wrong bytes, the first at offset {start + at:#x}: "
        f"{found[at]:#04x} found, {wanted[at]:#04x} expected"
    )


def _read_back(cluster: Cluster, board: int, bank: int, start: int, size: int) -> str:
    for offset, count in _chunks(size):
        wanted = _pattern(board, bank, offset, count)
        found = cluster.read(board, bank, start + offset, count)
        fault = _difference(found, wanted, start + offset)
        if fault:
            return fault
        crc = cluster.checksum(board, bank, start + offset, count)
        if crc != zlib.crc32(wanted.tobytes()):
            return f"the board's checksum at offset {start + offset:#x} is wrong, the host's right"
    return ""
