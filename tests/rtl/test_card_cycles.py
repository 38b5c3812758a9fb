"""Simulated cycles of a card's steps against the timing model, whose constants come from units
alone at other shapes (card_units.py)."""

from __future__ import annotations

import pytest

from tests.rtl.card_cases import CASES, LATENCY
from tests.rtl.card_table import compared
from tests.rtl.card_units import REQUESTS
from tests.rtl.step_cycles import measure

pytestmark = [pytest.mark.rtl, pytest.mark.long]

SLACK = 0.05


@pytest.mark.parametrize("name", CASES)
def test_a_step_takes_what_the_model_says(name: str) -> None:
    for found in compared(CASES[name], measure(CASES[name], LATENCY)):
        assert abs(found.error) <= SLACK, found


def test_no_step_has_the_shape_of_a_unit_run() -> None:
    shapes = [(one.config, one.scheme, one.rank) for one in REQUESTS.values()]
    assert all((one.config, one.scheme, one.rank) not in shapes for one in CASES.values())
