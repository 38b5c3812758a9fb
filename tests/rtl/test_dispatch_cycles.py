"""What dispatch costs on the simulated control: the values of timing/data/sequencer.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lora_host import abi
from lora_lab.timing.sequencer import sequencer_data
from tests.rtl.dispatch_rig import LATENCIES, llama, measure
from tests.rtl.test_control import small
from tests.unit.test_timing_control import DURATIONS, Rig

pytestmark = pytest.mark.rtl

LONG = pytest.mark.long


def settled(rig: Rig, rows: int) -> int:
    """Cycles of a step besides its commands, once steps before it had as many rows."""
    for _ in range(3):
        rig.step(rows)
    return besides(rig)


def besides(rig: Rig) -> int:
    """Cycles of the last step before the first command and after the last."""
    found = rig.card.measured()
    return found.before + found.after


def near(found: float, counts: tuple[float, float], latency: int, slack: float = 0.01) -> bool:
    expected = counts[0] + counts[1] * latency
    return abs(found - expected) <= slack * expected


@pytest.mark.parametrize("boards", [1, *(pytest.param(n, marks=LONG) for n in (4, 32))])
def test_a_list_costs_what_the_data_say(boards: int) -> None:
    """Goals: 5,000 cycles from the doorbell to the first command, 20 between two of them."""
    rig = llama(boards)
    (expected,) = (entry for entry in sequencer_data()["lists"] if entry["boards"] == boards)
    for latency in LATENCIES:
        found = measure(rig, latency)
        assert found.commands == expected["commands"]
        assert 0 < found.command <= 20 and near(found.command, (expected["command"], 0), latency)
        assert found.before <= 5_000
        assert near(found.step, expected["step"], latency), found
        assert near(found.token, expected["token"], latency), found
    rig.card.close()


@pytest.fixture(scope="module", params=LATENCIES)
def header(request: pytest.FixtureRequest) -> Iterator[tuple[Rig, int]]:
    """A small list: what a step's header costs does not depend on the commands."""
    rig = small(1, 0)
    rig.step(1)
    rig.card.take_time(DURATIONS, request.param)
    yield rig, request.param
    rig.card.close()


def _rows(rig: Rig) -> float:
    return (settled(rig, 33) - settled(rig, 1)) / 32


def _rows_of_a_tree(rig: Rig) -> float:
    one = settled(rig, 1)
    settled(rig, 16)
    rig.step(16, chain=True)
    return (besides(rig) - one) / 15


def _commits(rig: Rig) -> float:
    settled(rig, 16)
    rig.step(16, chain=True)
    one = besides(rig)
    rig.step(16, chain=True)
    return (besides(rig) - one) / 15


def _tiles(rig: Rig) -> float:
    def settle() -> tuple[int, int]:
        return settled(rig, 1), -(-(rig.length + 1) // abi.TILE_POSITIONS)

    one, few = settle()
    for _ in range(6):
        rig.step(15, chain=True)
    more, many = settle()
    return (more - one) / (many - few)


@pytest.mark.parametrize(
    ("part", "measured"),
    [("row", _rows), ("row", _rows_of_a_tree), ("commit", _commits), ("tile", _tiles)],
)
def test_parts_of_a_step_cost_what_the_data_say(
    header: tuple[Rig, int], part: str, measured: Callable[[Any], float]
) -> None:
    rig, latency = header
    found = measured(rig)
    assert near(found, sequencer_data()["parts"][part], latency, 0.03), found
