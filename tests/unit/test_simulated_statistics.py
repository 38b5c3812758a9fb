"""What `--stats` says of simulated cards, whose cycles are given here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lora_sdk.cli.statistics import Statistics


def engine_of(cycles: list[int]) -> Any:
    boards = SimpleNamespace(simulated_cycles=lambda: list(cycles), cards=SimpleNamespace())
    cluster = SimpleNamespace(emulated=boards, stats=lambda: SimpleNamespace(steps=2))
    overlay = SimpleNamespace(clock_hz=200_000_000)
    return SimpleNamespace(cluster=cluster, plan=SimpleNamespace(overlay=overlay))


def busiest(statistics: Statistics, engine: Any) -> int:
    return int(next(statistics._cycles(engine)).split()[1])


def test_each_board_counts_from_its_own_start() -> None:
    """The busiest one while the model was loaded may be another one afterwards."""
    cycles = [1000, 400]
    engine = engine_of(cycles)
    statistics = Statistics()
    statistics.loaded(engine, cast(Any, None))
    cycles[:] = 1100, 900
    assert busiest(statistics, engine) == 500


def test_boards_that_were_opened_again_count_from_there() -> None:
    statistics = Statistics()
    statistics.loaded(engine_of([1000, 400]), cast(Any, None))
    assert busiest(statistics, engine_of([300])) == 300
