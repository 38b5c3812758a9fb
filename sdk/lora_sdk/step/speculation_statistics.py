"""Statistics of speculative decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=512)  # called per verification, with few distinct shapes
def _widths(parents: tuple[int, ...]) -> tuple[int, ...]:
    """Number of nodes at each depth below the root."""
    depths = [0] * len(parents)
    for node, parent in enumerate(parents[1:], 1):
        depths[node] = depths[parent] + 1
    return tuple(depths.count(depth) for depth in range(1, max(depths) + 1))


@dataclass
class SpeculationStatistics:
    """Counts of verifications. Position p is the p-th token after the pending one, from 1 on.

    `drafted[p]`: verifications with at least one node there. `rows[p]`: total nodes there.
    `accepted[p]`: verifications that accepted one of them. `lengths`: verifications by number of
    rows, the root included. `chosen`: verifications by size of the requested tree, before the
    proposer, the end of the text or the free rows cut it. `draft_seconds`: measured, of all
    proposals."""

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
        """Count a verification of rows with these `parents` (root first, -1) that emitted `emitted`
        tokens, the last of which is the target's own. `chosen`: size of the requested tree."""
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
        """Add the counts of `other`."""
        self.verifications += other.verifications
        self.emitted += other.emitted
        self.draft_seconds += other.draft_seconds
        for name in ("drafted", "rows", "accepted", "lengths", "chosen"):
            getattr(self, name).update(getattr(other, name))

    @property
    def mean_emitted(self) -> float:
        """Mean tokens per verification (AAT); 1 if nothing was verified."""
        return self.emitted / self.verifications if self.verifications else 1.0

    @property
    def mean_rows(self) -> float:
        """Mean verification length, the root included."""
        total = sum(length * count for length, count in self.lengths.items())
        return total / self.verifications if self.verifications else 1.0

    def acceptance(self, position: int) -> float:
        """Fraction of the verifications with a draft at `position` that accepted one there."""
        drafted = self.drafted[position]
        return self.accepted[position] / drafted if drafted else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON. Counts per position are lists that begin with position 1."""
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
        """Readable lines: acceptance overall and by position."""
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
