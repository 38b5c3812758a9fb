"""What a campaign has found, as JSON and as Markdown: kinds by phases, and what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lora_host.naming import counted
from lora_lab.torture.campaign import Verdict
from lora_lab.torture.faults import EMULATED
from lora_lab.torture.host import kinds as host_kinds
from lora_lab.torture.kinds import KINDS, Kind
from lora_lab.torture.phases import PHASES

MOST_FAILURES = 100  # that are kept with their faults


@dataclass
class Report:
    """Counts of runs `first` to before `next` of a seed."""

    seed: int
    first: int
    next: int
    failed: int = 0
    noticed: int = 0
    recovered: int = 0
    errors: int = 0
    target: str = EMULATED
    seconds: float = 0.0
    slowest: float = 0.0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_count: Counter[int] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a run."""
        run = verdict.run
        self.next = max(self.next, run.number + 1)
        self.by_count[len(run.faults)] += 1
        for fault in run.faults:
            self.cells[fault.kind, run.phase] += 1
        self.noticed += verdict.noticed
        self.recovered += verdict.recovered
        self.errors += verdict.errored
        self.slowest = max(self.slowest, verdict.seconds)
        if verdict.problems:
            self.failed += 1
            if len(self.failures) < MOST_FAILURES:
                smallest = (verdict.smallest or run).as_dict()
                self.failures.append({"problems": list(verdict.problems), "replay": smallest})

    @property
    def _phases(self) -> tuple[str, ...]:
        return tuple(PHASES) if self.target == EMULATED else host_kinds.phases_of(self.target)

    @property
    def _kinds(self) -> Sequence[Kind | host_kinds.Kind]:
        if self.target == EMULATED:
            return KINDS
        return [kind for kind in host_kinds.KINDS if self.target in kind.targets]

    @property
    def runs(self) -> int:
        """Runs counted."""
        return sum(self.by_count.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "target": self.target,
            "seed": self.seed,
            "first": self.first,
            "next": self.next,
            "runs": self.runs,
            "failed": self.failed,
            "noticed": self.noticed,
            "recovered": self.recovered,
            "ended_with_one_error": self.errors,
            "seconds": round(self.seconds, 1),
            "slowest_run_seconds": round(self.slowest, 3),
            "faults_at_once": {str(count): self.by_count[count] for count in sorted(self.by_count)},
            "cells": {
                kind.name: {phase: self.cells[kind.name, phase] for phase in self._phases}
                for kind in self._kinds
            },
            "failures": self.failures,
        }

    def markdown(self) -> str:
        """The same for readers."""
        span = f"runs {self.first} to {self.next - 1}: " if self.runs > 1 else ""
        lines = [
            f"seed {self.seed}, {span}{counted(self.runs, 'run')} in "
            f"{self.seconds:.0f} s, {self.failed} failed; {self.recovered} recovered, "
            f"{self.errors} ended with one error, slowest {self.slowest:.2f} s",
            "",
            "| kind | " + " | ".join(self._phases) + " |",
            "|---|" + "---:|" * len(self._phases),
        ]
        for kind in self._kinds:
            cells = (
                str(self.cells[kind.name, phase]) if phase in kind.phases else "-"
                for phase in self._phases
            )
            lines.append(f"| {kind.name} | " + " | ".join(cells) + " |")
        for failure in self.failures:
            lines += ["", f"failed: {'; '.join(failure['problems'])}", f"`{failure['replay']}`"]
        return "\n".join(lines)
