"""What speculation did: counted while it runs, read as figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=512)  # every verification counts, and few shapes come again and again
def _widths(parents: tuple[int, ...]) -> tuple[int, ...]:
    """Nodes at each position behind the root."""
    depths = [0] * len(parents)
    for node, parent in enumerate(parents[1:], 1):
        depths[node] = depths[parent] + 1
    return tuple(depths.count(depth) for depth in range(1, max(depths) + 1))


@dataclass
class SpeculationStatistics:
    """Counts of verifications. Position p is the p-th token behind the pending one, from 1 on.

    `drafted[p]`: verifications with at least one node there; `rows[p]`: nodes there in all;
    `accepted[p]`: verifications that accepted one of them. `lengths`: verifications by rows, the
    root included. `chosen`: by the size of the tree that was asked for, before the proposer, the
    end of the text and free rows cut it. `draft_seconds`: measured, of all proposals."""

    verifications: int = 0
    emitted: int = 0
    drafted: Counter[int] = field(default_factory=Counter)
    rows: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    chosen: Counter[int] = field(default_factory=Counter)
    draft_seconds: float = field(default=0.0, compare=False)

    def add(
        self, chosen: int, parents: Sequence[int], emitted: int, draft_seconds: float = 0.0
    ) -> None:
        """A verification of the rows with these `parents` (root first, -1) emitted so many tokens,
        of which the last is the target's own; its proposal took `draft_seconds`."""
        self.verifications += 1
        self.emitted += emitted
        self.chosen[chosen] += 1
        self.lengths[len(parents)] += 1
        for position, nodes in enumerate(_widths(tuple(parents)), 1):
            self.drafted[position] += 1
            self.rows[position] += nodes
        for position in range(1, emitted):
            self.accepted[position] += 1
        self.draft_seconds += draft_seconds

    def merge(self, other: SpeculationStatistics) -> None:
        """Add another one's counts."""
        self.verifications += other.verifications
        self.emitted += other.emitted
        self.draft_seconds += other.draft_seconds
        for name in ("drafted", "rows", "accepted", "lengths", "chosen"):
            getattr(self, name).update(getattr(other, name))

    @property
    def mean_emitted(self) -> float:
        """Mean tokens a verification (AAT); 1 where nothing was verified."""
        return self.emitted / self.verifications if self.verifications else 1.0

    @property
    def mean_rows(self) -> float:
        """Mean verification length, the root included."""
        total = sum(length * count for length, count in self.lengths.items())
        return total / self.verifications if self.verifications else 1.0

    def acceptance(self, position: int) -> float:
        """Of the verifications that drafted at `position`, the share that accepted there."""
        drafted = self.drafted[position]
        return self.accepted[position] / drafted if drafted else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: counts a position as lists, the first is position 1."""
        depth = max(self.drafted, default=0)
        positions = range(1, depth + 1)
        return {
            "verifications": self.verifications,
            "emitted": self.emitted,
            "mean_emitted": self.mean_emitted,
            "mean_accepted": self.mean_emitted - 1.0,
            "mean_rows": self.mean_rows,
            "draft_seconds_measured": self.draft_seconds,
            "drafted": [self.drafted[p] for p in positions],
            "drafted_rows": [self.rows[p] for p in positions],
            "accepted": [self.accepted[p] for p in positions],
            "lengths": {str(size): self.lengths[size] for size in sorted(self.lengths)},
            "chosen_lengths": {str(size): self.chosen[size] for size in sorted(self.chosen)},
        }

    def lines(self) -> list[str]:
        """For people: how much was accepted, in all and by position."""
        if not self.verifications:
            return ["speculation: nothing was verified"]
        shares = ", ".join(
            f"{position}: {100 * self.acceptance(position):.0f}%"
            for position in range(1, max(self.drafted, default=0) + 1)
        )
        sizes = ", ".join(f"{size} x{self.chosen[size]}" for size in sorted(self.chosen))
        return [
            f"speculation: {self.emitted} tokens in {self.verifications} verifications, "
            f"{self.mean_emitted:.2f} each of {self.mean_rows:.1f} rows",
            f"speculation: accepted by position {shares or 'none'}; chosen lengths {sizes}",
        ]
