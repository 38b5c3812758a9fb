"""A fault and a run of a campaign, as drawn from its seed and as written into a replay file."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean

MOST_FAULTS = 3
SIZES = (1, 2, 2, 4)
"""Boards of a run: two as often as one and four together."""
LATEST = 5  # step before which a fault may strike


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
    """One run. Equal runs do the same."""

    number: int
    phase: str
    boards: int
    faults: tuple[Fault, ...]

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


def run_from(values: Mapping[str, Any], kinds: Sequence[str], phases: Sequence[str]) -> Run:
    """The run of a replay file. RequestError names what is wrong in it."""
    try:
        faults = tuple(_fault_from(one, kinds) for one in values["faults"])
        run = Run(_count(values["number"]), str(values["phase"]), _count(values["boards"]), faults)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"replay file: {error!r}; expected number, phase, boards and faults with kind, board, "
            "at and numbers"
        ) from None
    if run.phase not in phases:
        raise RequestError(f"phase {run.phase!r} is not known; {did_you_mean(run.phase, phases)}")
    if run.boards not in SIZES or not len(faults) <= MOST_FAULTS:
        raise RequestError(
            f"replay file: boards {run.boards}, faults {len(faults)}; expected 1, 2 or 4 boards "
            f"and at most {MOST_FAULTS} faults"
        )
    for fault in faults:
        if fault.board >= run.boards:
            raise RequestError(f"replay file: board {fault.board} of {run.boards}")
    return run


def _fault_from(values: Mapping[str, Any], kinds: Sequence[str]) -> Fault:
    kind = str(values["kind"])
    if kind not in kinds:
        raise RequestError(f"kind {kind!r} is not known; {did_you_mean(kind, kinds)}")
    numbers = tuple(_count(number) for number in values.get("numbers", ()))
    return Fault(kind, _count(values["board"]), _count(values["at"]), numbers[:8])


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ValueError(value)
    return value


def draws_of(seed: int, number: int) -> random.Random:
    """The random numbers of a run: of nothing but seed and number."""
    return random.Random(f"torture {seed} {number}")
