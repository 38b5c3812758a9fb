"""A step as a card's units see it: each row with the positions that it attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lora_host import abi
from lora_lab.timing.step import StepShape


@dataclass(frozen=True)
class CardRow:
    """A row behind `committed` positions. `path`: scratch slots from the first uncommitted row down
    to its own. `adapter`: -1 none."""

    committed: int
    path: tuple[int, ...]
    adapter: int = -1

    @property
    def visible(self) -> int:
        """Positions that the row attends to."""
        return self.committed + len(self.path)


@dataclass(frozen=True)
class CardStep:
    """`selected`: numbers of the rows that lm_head works on. `commits`: slots that the header moves
    into the cache, by operation."""

    rows: tuple[CardRow, ...]
    selected: tuple[int, ...]
    commits: tuple[tuple[int, ...], ...] = ()

    def of(self, flags: int) -> Sequence[CardRow]:
        """The rows of a command with these flags."""
        if flags & abi.FLAG_VOTES:
            return self.rows[:1]
        if flags & (abi.FLAG_SELECTED | abi.FLAG_PACK):
            return [self.rows[number] for number in self.selected]
        return self.rows


def card_step_of(shape: StepShape) -> CardStep:
    """A step of which the sizes alone are known: rows of a sequence as a chain, sequences of one
    length, slots from 0 on, the last rows sampled, what is committed as one chain."""
    each, rows = shape.rows // max(1, shape.sequences), []
    for first in range(0, shape.rows, max(1, each)):
        behind = shape.kv_positions // max(1, shape.sequences) - each
        chain = range(first, min(first + each, shape.rows))
        rows += [CardRow(max(0, behind), tuple(chain[: i + 1])) for i in range(len(chain))]
    rows = [
        CardRow(row.committed, row.path, 0 if number < shape.adapted else -1)
        for number, row in enumerate(rows)
    ]
    selected = tuple(range(len(rows) - shape.sampled, len(rows)))
    path = tuple(range(shape.committed))
    return CardStep(tuple(rows), selected, (path,) if path else ())
