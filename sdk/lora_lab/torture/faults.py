"""A fault and a run of a campaign, as drawn from its seed and as written into a replay file."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any

EMULATED = "emu"
MOST_FAULTS = 3
SIZES = (1, 2, 2, 4)
"""Boards of a run: two as often as one and four together."""
LATEST = 5  # steps after one of which a fault strikes


@dataclass(frozen=True)
class Fault:
    """`kind`: its name in the table. `board`: that has it. `at`: steps of the phase before it
    strikes. `numbers`: what its kind draws besides."""

    kind: str
    board: int
    at: int
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """One run. Equal runs do the same. `target`: where its faults are: emulated boards of the
    campaign's process, or processes (lora_lab.torture.host)."""

    number: int
    phase: str
    boards: int
    faults: tuple[Fault, ...]
    target: str = EMULATED

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def without(self, index: int) -> Run:
        """The run with one fault less."""
        kept = tuple(fault for i, fault in enumerate(self.faults) if i != index)
        return replace(self, faults=kept)

    def __str__(self) -> str:
        faults = "; ".join(
            f"{one.kind} of board {one.board} at {one.at} {list(one.numbers)}"
            for one in self.faults
        )
        return f"run {self.number}: {self.phase} on {self.boards}: {faults or 'nothing'}"


def draws_of(seed: int, number: int) -> random.Random:
    """The random numbers of a run: of nothing but seed and number."""
    return random.Random(f"torture {seed} {number}")
