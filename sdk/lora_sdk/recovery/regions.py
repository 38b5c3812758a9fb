"""The tables of weight regions that boards sum by themselves (struct lora_scrub)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_host.errors import PlacementError
from lora_host.placing import Range, crc32

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_sdk.plan.model_plan import Plan

NOT_YET = 0xFFFFFFFF  # good_step of a region that was not summed since the table was taken
LEAST_JOINED = 1 << 20  # bytes


def joined(parts: Sequence[Range], limit: int) -> list[Range]:
    """The parts in the order of addresses; adjacent ones joined up to `limit` bytes."""
    found: list[Range] = []
    for part in sorted(parts, key=key):
        if not found or found[-1].bytes + part.bytes > limit or not found[-1].join(part):
            found.append(replace(part))
    return found


def key(region: Range) -> tuple[int, int, int]:
    """Where it lies."""
    return region.board, region.bank, region.offset


class Regions:
    """Those of one placed model, by board; the last ones are adapters'."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster, self._plan = cluster, plan
        self._held: dict[int, list[Range]] = {}

    def register(
        self, weights: Sequence[Range], held: Sequence[Range], header: Mapping[str, int]
    ) -> None:
        """Write the tables and let the boards sum them from now on. PlacementError: more regions
        than a table has room for."""
        for board in self._plan.boards:
            own = [one for one in held if one.board == board.board and one.bytes]
            mine = [one for one in weights if one.board == board.board]
            found = [*_fitting(mine, abi.MAX_REGIONS - len(own)), *own]
            if len(found) > abi.MAX_REGIONS:
                raise PlacementError(
                    f"board {board.board}: {len(found)} regions of weights to be summed; at most "
                    f"{abi.MAX_REGIONS} expected; open with fewer adapter slots or "
                    "check_weights 'off'"
                )
            self._held[board.board] = found
            self._write(board.board, board.control.regions_offset, found, header)

    def _write(
        self, board: int, at: int, found: Sequence[Range], header: Mapping[str, int]
    ) -> None:
        table = np.zeros(len(found), abi.dtype("region"))
        for name in ("offset", "bytes", "bank"):
            table[name] = [getattr(one, name) for one in found]
        table["expected"] = [one.crc for one in found]
        table["good_step"] = NOT_YET
        first = np.zeros(1, abi.dtype("scrub"))
        first["size"], first["region_count"] = first.itemsize, len(found)
        first["crc"] = crc32(table.view(np.uint8))
        for name, value in header.items():
            first[name] = value
        data = first.tobytes() + table.tobytes()
        bank = self._plan.overlay.control_bank
        none = first.copy()
        none["region_count"] = none["crc"] = 0  # a board that sums writes to its table
        for content in (none.tobytes(), data):
            self._cluster.write(board, bank, at, content)
            self._cluster.regions(board, at)

    @property
    def all(self) -> list[Range]:
        """Of all boards."""
        return [one for found in self._held.values() for one in found]

    @property
    def count(self) -> int:
        """Of all boards."""
        return sum(map(len, self._held.values()))

    def good_steps(self) -> list[tuple[Range, int | None]]:
        """Each region and the last step that was done when it was last known to be right; None
        where it was not summed since the tables were taken. Reads the tables."""
        found: list[tuple[Range, int | None]] = []
        for board in self._plan.boards:
            regions = self._held[board.board]
            table = np.empty(len(regions), abi.dtype("region"))
            at = board.control.regions_offset + abi.dtype("scrub").itemsize
            bank = self._plan.overlay.control_bank
            if len(table):
                self._cluster.read_into(board.board, bank, at, table.view(np.uint8))
            steps = [None if step == NOT_YET else int(step) for step in table["good_step"].tolist()]
            found += zip(regions, steps, strict=True)
        return found


def _fitting(parts: Sequence[Range], room: int) -> list[Range]:
    """Joined, the larger the more there are."""
    limit = LEAST_JOINED
    while True:
        found = joined(parts, limit)
        if len(found) <= room or limit > sum(one.bytes for one in parts):
            return found
        limit *= 2
