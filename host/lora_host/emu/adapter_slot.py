"""The factors A and B of one matrix in a row's adapter slot, read from the banks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall

CHUNK, GROUP, BLOCK_N = abi.ADAPTER_CHUNK, abi.ADAPTER_GROUP, abi.BLOCK_N


@dataclass(frozen=True)
class Slot:
    """Slot `number` as a linear byte range. Its chunks are striped over the banks."""

    call: UnitCall
    number: int

    def read(self, offset: int, count: int) -> NDArray[np.uint8]:
        """A copy of `count` bytes. ValueError if they exceed the slot."""
        header = self.call.list
        end = offset + count
        if not 0 <= self.number < header.adapter_slots or end > header.adapter_chunks * CHUNK:
            raise ValueError(f"adapter slot {self.number}: bytes {offset}..{end} are outside")
        chunks = range(offset // CHUNK, -(-end // CHUNK))
        parts = [self._chunk(chunk) for chunk in chunks]
        whole = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        start = offset - chunks.start * CHUNK
        return whole[start : start + count]

    def _chunk(self, chunk: int) -> NDArray[np.uint8]:
        header = self.call.list
        request = self.number * header.adapter_chunks + chunk
        row, bank = divmod(request, header.adapter_bank_count)
        offset = header.adapter_line * LINE_BYTES + row * CHUNK
        return self.call.view(header.adapter_bank_first + bank, offset, (CHUNK,), np.uint8)

    def factors(self, matrix: int) -> tuple[list[Any], list[Any]]:
        """(factors of A, factors of B) of a matrix, records of struct lora_adapter_factor."""
        entry_type, factor_type = abi.dtype("adapter_matrix"), abi.dtype("adapter_factor")
        offset = abi.dtype("adapter_slot").itemsize + matrix * entry_type.itemsize
        entry = self.read(offset, entry_type.itemsize).view(entry_type)[0]
        down, count = int(entry["down_count"]), int(entry["down_count"]) + int(entry["up_count"])
        raw = self.read(int(entry["offset"]), count * factor_type.itemsize)
        found = list(raw.view(factor_type))
        return found[:down], found[down:]

    def a_values(self, factor: Any) -> NDArray[np.float16]:
        """A's part: FP16 [count, rank_count]."""
        count, ranks = int(factor["count"]), int(factor["rank_count"])
        groups = -(-ranks // GROUP)
        raw = self.read(int(factor["offset"]), groups * count * GROUP * 2).view(np.float16)
        by_column = raw.reshape(groups, count, GROUP).transpose(1, 0, 2)
        values: NDArray[np.float16] = by_column.reshape(count, -1)[:, :ranks]
        return values

    def b_values(self, factor: Any) -> NDArray[np.float16]:
        """B's part, whole column tiles: FP16 [rank_count, tiles*32]."""
        first, count = int(factor["first"]), int(factor["count"])
        ranks = int(factor["rank_count"])
        tiles = -(-(first + count) // BLOCK_N) - first // BLOCK_N
        raw = self.read(int(factor["offset"]), tiles * ranks * BLOCK_N * 2).view(np.float16)
        by_rank = raw.reshape(tiles, ranks, BLOCK_N).transpose(1, 0, 2)
        values: NDArray[np.float16] = by_rank.reshape(ranks, -1)
        return values


def slots_of_rows(call: UnitCall) -> Iterator[tuple[Slot, list[int]]]:
    """Each slot that rows of the command use, with those rows."""
    by_slot: dict[int, list[int]] = {}
    for i, row in enumerate(call.rows()):
        if row.adapter >= 0:
            by_slot.setdefault(int(row.adapter), []).append(i)
    for number, rows in by_slot.items():
        yield Slot(call, number), rows


def h_columns(factor: Any) -> NDArray[np.int64]:
    """Columns of h that hold the factor's ranks, [rank_count]."""
    first = int(factor["rank_first"])
    j = np.arange(first, first + int(factor["rank_count"]))
    run = int(factor["h_run"])
    columns: NDArray[np.int64] = int(factor["h_first"]) + j // run * int(factor["h_skip"]) + j % run
    return columns


def h_rows(call: UnitCall) -> NDArray[np.float16]:
    """The rows of h, FP16 [rows, adapter_columns]."""
    c = call.command
    width = call.list.adapter_columns
    return call.rows_view(BANK_ONCHIP, c.h_offset, c.h_stride, width, np.float16)
