"""Primary roofline and effective performance (tree-speculation paper, III.A, III.B).

Rows processed per second are P(x) = x / T_v(x). With drafting they are P_disc(x) = x / (T_v + T_d).
Tokens emitted per second are P_eff(x) = AAT(x) / (T_v(x) + T_d(x)). Speculation pays if the max of
P_eff is above P(1), the rate of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lora_host.errors import RequestError
from lora_lab.spec_tuning.aat import AatCurve

ROOF_SHARE = 0.98
"""P(x) at the ridge point, as a share of the max."""


class StepTimes(Protocol):
    """Seconds of the parts of a round, modelled or measured."""

    def plain(self, context: int) -> float:
        """One plain token that attends to `context` positions: T_v(1)."""

    def verify(self, rows: int, context: int) -> float:
        """A verification of `rows` rows over `context` positions: T_v(x)."""

    def draft(self, rows: int, context: int) -> float:
        """Drafting a tree of `rows` rows: T_d(x); 0 for one row."""


@dataclass(frozen=True)
class Round:
    """One draft and one verification of `rows` rows: seconds, and mean emitted tokens."""

    rows: int
    verify_s: float
    draft_s: float
    aat: float

    @property
    def primary(self) -> float:
        """Rows verified per second, P(x) (equation 1)."""
        return self.rows / self.verify_s

    @property
    def effective(self) -> float:
        """Tokens per second, P_eff(x) (equation 7)."""
        return self.aat / (self.verify_s + self.draft_s)


@dataclass(frozen=True)
class Roofline:
    """Rounds of every length at one context. One row is plain decoding."""

    context: int
    rounds: tuple[Round, ...]

    @property
    def plain(self) -> float:
        """Tokens per second of plain decoding, P(1)."""
        return self.rounds[0].effective

    @property
    def ridge(self) -> int:
        """The shortest length that reaches the roof, x_R of equation 1."""
        roof = max(entry.primary for entry in self.rounds)
        return next(r.rows for r in self.rounds if r.primary >= ROOF_SHARE * roof)

    def at(self, rows: int) -> Round:
        """The round of `rows` rows. RequestError if it was not computed."""
        for entry in self.rounds:
            if entry.rows == rows:
                return entry
        raise RequestError(f"no round of {rows} rows; there are {[r.rows for r in self.rounds]}")

    def speedup(self, rows: int) -> float:
        """Tokens per second with `rows` rows, relative to plain decoding (equation 8)."""
        return self.at(rows).effective / self.plain

    def best(self, margin: float = 1.0, slack: float = 1.0) -> Round:
        """The shortest round with at least `slack` times the max tokens per second. Plain decoding
        if no round is more than `margin` times as fast."""
        most = max(entry.effective for entry in self.rounds)
        if most <= margin * self.plain:
            return self.rounds[0]
        enough = max(slack * most, margin * self.plain)
        return next(r for r in self.rounds if r.effective >= enough and r.rows > 1)


def roofline(times: StepTimes, aat: AatCurve, context: int, sizes: Iterable[int]) -> Roofline:
    """Rounds of the `sizes` (rows, those above 1) at `context`, in ascending order.

    RequestError: a context below 1."""
    if context < 1:
        raise RequestError(f"context {context}; expected at least 1 position")
    rounds = [Round(1, times.plain(context), 0.0, 1.0)]
    for rows in sorted({size for size in sizes if size > 1}):
        verify_s, draft_s = times.verify(rows, context), times.draft(rows, context)
        rounds.append(Round(rows, verify_s, draft_s, aat(rows)))
    return Roofline(context, tuple(rounds))
