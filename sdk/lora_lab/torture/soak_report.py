"""What a soak has measured, quarter by quarter: latency, memory, descriptors, threads."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lora_host.naming import counted

QUARTERS = 4
GROWTH = 1.05
SLACK_KIB = 8 << 10
LEAST_SECONDS = 600.0  # of a soak whose memory is judged: it grows until all paths were taken
MOST_PROBLEMS = 20  # that are kept


@dataclass(frozen=True)
class Took:
    """A request that has ended well: when, since the begin, and how long it took, in seconds."""

    kind: str
    ended: float
    seconds: float


@dataclass(frozen=True)
class Held:
    """What the process held at a moment. `ended`: seconds since the begin."""

    ended: float
    resident_kib: int
    descriptors: int
    threads: int


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which so large a part lies; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass
class SoakReport:
    """Of one soak. `problems`: what was wrong; their number is `failed`."""

    seconds: float
    seed: int
    boards: int
    took: list[Took] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    opened: int = 0
    failed: int = 0
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Count something that was wrong."""
        self.failed += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def judge_memory(self) -> None:
        """Resident memory settles: the last quarter holds hardly more than the second one."""
        if self.seconds < LEAST_SECONDS:
            return
        second, last = self._resident(1), self._resident(QUARTERS - 1)
        if second and last > second * GROWTH + SLACK_KIB:
            self.problem(f"resident memory {last} KiB in the last quarter, {second} in the second")

    def _of_quarter(self, ended: float) -> int:
        return min(QUARTERS - 1, int(QUARTERS * ended / self.seconds))

    def _resident(self, quarter: int) -> int:
        found = [one.resident_kib for one in self.held if self._of_quarter(one.ended) == quarter]
        return int(statistics.median(found)) if found else 0

    def quarters(self) -> list[dict[str, Any]]:
        """An object a quarter. `relative`: times over the median of their kind in the whole soak,
        so that the mix of requests does not count."""
        middles = {
            kind: percentile([one.seconds for one in self.took if one.kind == kind], 0.5)
            for kind in {one.kind for one in self.took}
        }
        found = []
        for quarter in range(QUARTERS):
            took = [one for one in self.took if self._of_quarter(one.ended) == quarter]
            held = [one for one in self.held if self._of_quarter(one.ended) == quarter]
            relative = [one.seconds / middles[one.kind] for one in took]
            found.append(
                {
                    "requests": len(took),
                    "median_ms": round(1e3 * percentile([one.seconds for one in took], 0.5), 1),
                    "p99_ms": round(1e3 * percentile([one.seconds for one in took], 0.99), 1),
                    "relative_median": round(percentile(relative, 0.5), 3),
                    "relative_p99": round(percentile(relative, 0.99), 3),
                    "resident_kib": self._resident(quarter),
                    "descriptors": max((one.descriptors for one in held), default=0),
                    "threads": max((one.threads for one in held), default=0),
                }
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seed": self.seed,
            "boards": self.boards,
            "seconds": round(self.seconds, 1),
            "requests": len(self.took),
            "by_kind": dict(sorted(Counter(one.kind for one in self.took).items())),
            "faults": dict(sorted(self.faults.items())),
            "errors": dict(sorted(self.errors.items())),
            "recoveries": self.recoveries,
            "engines_opened": self.opened,
            "quarters": self.quarters(),
            "failed": self.failed,
            "problems": self.problems,
        }

    def markdown(self) -> str:
        """The same for readers."""
        quarters = self.quarters()
        lines = [
            f"seed {self.seed}, {counted(self.boards, 'board')}, {self.seconds:.0f} s: "
            f"{len(self.took)} requests, {self.faults.total()} faults of {len(self.faults)} kinds, "
            f"{self.recoveries} recoveries, {self.errors.total()} ended with an error that a fault "
            f"explains, {self.failed} wrong",
            "",
            "| | 1st quarter | 2nd | 3rd | 4th |",
            "|---|" + "---:|" * QUARTERS,
        ]
        for key in quarters[0]:
            cells = " | ".join(f"{one[key]:,}" for one in quarters)
            lines.append(f"| {key.replace('_', ' ')} | {cells} |")
        return "\n".join([*lines, *(f"\nwrong: {problem}" for problem in self.problems)])
