"""The sizes of a step: what a record of steps is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StepShape:
    """The sizes of a step. `visible`: sum over rows of the positions that each attends to,
    including itself. `kv_positions`: positions of K and V read from the cache, once per sequence,
    or once per page where sequences share pages. `shared`: positions that are not read again for
    that reason; the firmware walks their tables all the same.
    `sampled`: rows that go through lm_head. `committed`: positions that the step's header first
    moves into the cache (from the previous step). `adapted`: rows with an adapter. `adapters`:
    distinct ones. `sequences`: those that the rows belong to. `spilled`: of `kv_positions`, those
    in pages outside the weight banks; None: as if the sequences alone had taken pages.
    `sampled_visible`: `visible` of the sampled rows, where these are not all; None: each attends to
    as many positions as a sequence has on average, as last rows of sequences of one length do."""

    rows: int
    visible: int
    kv_positions: int
    sampled: int
    committed: int = 0
    adapted: int = 0
    adapters: int = 0
    sequences: int = 1
    spilled: int | None = None
    shared: int = 0
    sampled_visible: int | None = None


class StepRecord(Protocol):
    """What is told of the steps of an engine."""

    def add(self, shape: StepShape) -> None:
        """A step was run."""

    def add_sums(self, commands: int, size: int) -> None:
        """The busiest board has summed `size` bytes of weights between steps."""


def of_rows(
    rows: Iterable[tuple[int, int, int]],
    sampled: Sequence[int],
    committed: int = 0,
    spilled: Callable[[int], int] | None = None,
) -> StepShape:
    """The shape of a step with rows (sequence, position, adapter or -1). `sampled`: numbers of the
    sampled rows. `spilled`: positions of a sequence in pages outside the weight banks."""
    longest: dict[int, int] = {}
    named: list[int] = []
    seen: list[int] = []
    for sequence, position, adapter in rows:
        if adapter >= 0:
            named.append(adapter)
        seen.append(position + 1)
        longest[sequence] = max(longest.get(sequence, 0), position + 1)
    some = len(sampled) < len(seen)
    return StepShape(
        len(seen),
        sum(seen),
        sum(longest.values()),
        len(sampled),
        committed,
        len(named),
        len(set(named)),
        len(longest),
        None if spilled is None else sum(map(spilled, longest)),
        sampled_visible=sum(seen[number] for number in sampled) if some else None,
    )
