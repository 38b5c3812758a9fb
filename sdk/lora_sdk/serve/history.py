"""Throughput and latency of the last minutes, for `/status`."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

PERIOD = 5.0  # seconds
PERIODS = 120  # that are kept: ten minutes
LATEST = 12  # periods that the present latency is of
_RATIO = 1.05  # of neighbouring times that are counted apart: a time is told within 2.5 %
_LEAST, _MOST = 1e-6, 1e5  # seconds; those beyond count as these


@dataclass
class Times:
    """Durations, counted by their logarithm: at most some 500 counts, however many durations."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[round(math.log(min(max(seconds, _LEAST), _MOST), _RATIO))] += 1

    def as_dict(self) -> dict[str, float] | None:
        """How many, and p50 and p99 in seconds by nearest rank; None without any."""
        total = self.counts.total()
        return {"count": total, "p50": self._rank(0.5), "p99": self._rank(0.99)} if total else None

    def _rank(self, share: float) -> float:
        wanted = math.ceil(share * self.counts.total())
        steps = sorted(self.counts)
        sums = accumulate(self.counts[step] for step in steps)
        found = next(step for step, many in zip(steps, sums, strict=True) if many >= wanted)
        return float(f"{_RATIO**found:.3g}")


@dataclass
class _Period:
    seconds: float = 0.0
    new_tokens: int = 0
    first: Times = field(default_factory=Times)
    between: Times = field(default_factory=Times)

    def as_dict(self) -> dict[str, object]:
        return {
            "seconds": round(self.seconds, 3),
            "new_tokens": self.new_tokens,
            "first_token": self.first.as_dict(),
            "between_tokens": self.between.as_dict(),
        }


class History:
    """The last `PERIODS` periods and the one that runs. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended: deque[_Period] = deque(maxlen=PERIODS)
        self._running = _Period()
        self._since, self._tokens = clock(), 0

    def first_token(self, seconds: float) -> None:
        """A request had its first token after so long."""
        self._running.first.add(seconds)

    def between_tokens(self, seconds: float) -> None:
        """So long after a token of a stream the next one came."""
        self._running.between.add(seconds)

    def turn(self, new_tokens: int) -> None:
        """A period ends; `new_tokens`: of all requests so far."""
        self._measure(new_tokens)
        self._ended.append(self._running)
        self._running, self._since, self._tokens = _Period(), self._clock(), new_tokens

    def as_dict(self, new_tokens: int) -> dict[str, object]:
        """`history`: oldest first, the last still runs; `latency`: of the last minute."""
        self._measure(new_tokens)
        periods = [*self._ended, self._running]
        latest = periods[-LATEST:]
        return {
            "latency": {
                "seconds": round(sum(one.seconds for one in latest), 3),
                "first_token": _together(one.first for one in latest).as_dict(),
                "between_tokens": _together(one.between for one in latest).as_dict(),
            },
            "history": [one.as_dict() for one in periods],
        }

    def _measure(self, new_tokens: int) -> None:
        self._running.seconds = self._clock() - self._since
        self._running.new_tokens = max(0, new_tokens - self._tokens)


def _together(several: Iterable[Times]) -> Times:
    return Times(sum((one.counts for one in several), Counter()))
