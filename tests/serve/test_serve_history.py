"""Throughput and latency of the last minutes, as `/status` tells them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lora_sdk.serve.history import LATEST, PERIODS, History, Times


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_percentiles_are_within_a_fortieth() -> None:
    times = Times()
    generator = random.Random(3)
    values = [10 ** generator.uniform(-4, 2) for _ in range(1000)]
    for value in values:
        times.add(value)
    told = times.as_dict()
    assert told is not None and told["count"] == 1000
    values.sort()
    assert told["p50"] == pytest.approx(values[499], rel=0.03)
    assert told["p99"] == pytest.approx(values[989], rel=0.03)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9, 1e-12])
def test_times_beyond_any_count_are_bounded(seconds: float) -> None:
    times = Times()
    times.add(seconds)
    told = times.as_dict()
    assert told is not None and 0 < told["p50"] == told["p99"] < 1.1e5


def test_no_times_are_none() -> None:
    assert Times().as_dict() is None


def test_periods_are_bounded_and_the_last_one_runs() -> None:
    clock = Clock()
    history = History(clock)
    for period in range(PERIODS + 10):
        clock.now += 5.0
        history.first_token(0.25)
        history.turn(100 * (period + 1))
    clock.now += 2.0
    told: dict[str, Any] = history.as_dict(100 * (PERIODS + 10) + 7)
    assert len(told["history"]) == PERIODS + 1
    assert told["history"][0] == {
        "seconds": 5.0, "new_tokens": 100, "between_tokens": None,
        "first_token": {"count": 1, "p50": pytest.approx(0.25, rel=0.03),
                        "p99": pytest.approx(0.25, rel=0.03)},
    }  # fmt: skip
    assert (told["history"][-1]["seconds"], told["history"][-1]["new_tokens"]) == (2.0, 7)
    assert told["latency"]["first_token"]["count"] == LATEST - 1
    assert told["latency"]["seconds"] == 5.0 * (LATEST - 1) + 2.0


def test_reading_changes_nothing() -> None:
    clock = Clock()
    history = History(clock)
    history.between_tokens(0.01)
    clock.now += 1.0
    assert history.as_dict(5) == history.as_dict(5)
