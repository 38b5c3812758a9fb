"""The tests of all units on the boards of a cluster."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from lora_host.cluster import Cluster
from lora_host.errors import LoraError

from . import four_bit, gathers, matmuls, moves, vectors
from .bench import BANK_BYTES, Bench, UnitResult

TESTS = (*moves.TESTS, *matmuls.TESTS, *four_bit.TESTS, *vectors.TESTS, *gathers.TESTS)


def check_units(cluster: Cluster) -> Iterator[UnitResult]:
    """Test each unit alone. DMA comes first, since it moves the others' operands. The cluster must
    have no memory reserved and its links must be up. Memory reserved here stays reserved."""
    bench = Bench(cluster)
    yield _checksum(bench)
    yield from bench.run(TESTS)


def operations(cluster: Cluster) -> int:
    """Number of results of `check_units`."""
    return 1 + sum(test.weights in cluster.overlay.weights for test in TESTS)


def _checksum(bench: Bench) -> UnitResult:
    """CRC-32 of an odd range, computed by the board's DMA unit."""
    try:
        return UnitResult("DMA", "checksum", _wrong_checksum(bench))
    except LoraError as error:
        return UnitResult("DMA", "checksum", str(error))


def _wrong_checksum(bench: Bench) -> str:
    data = bytes(range(251)) * (BANK_BYTES // 502)
    bank = bench.banks.start
    for board in range(bench.cluster.size):
        bench.cluster.write(board, bank, 0, data)
        found = bench.cluster.checksum(board, bank, 77, len(data) - 777)
        expected = zlib.crc32(data[77 : len(data) - 700])
        if found != expected:
            return f"board {board}: {found:#010x} found, {expected:#010x} expected"
    return ""
