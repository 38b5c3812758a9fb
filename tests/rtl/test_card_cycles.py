"""Simulated cycles of a card's steps against the timing model, whose constants come from units
alone at other shapes (card_units.py)."""

from __future__ import annotations

import pytest

from tests.rtl.card_build import wide
from tests.rtl.card_cases import CASES, LATENCY, WIDE, WIDE_LANES
from tests.rtl.card_table import compared
from tests.rtl.card_units import REQUESTS
from tests.rtl.step_cycles import measure
from tests.unit.simulated_layer import CYCLES as SIMULATED_LAYER

pytestmark = [pytest.mark.rtl, pytest.mark.long]

SLACK = 0.05


@pytest.mark.parametrize("name", CASES)
def test_a_step_takes_what_the_model_says(name: str) -> None:
    for found in compared(CASES[name], measure(CASES[name], LATENCY)):
        assert abs(found.error) <= SLACK, found


@pytest.mark.parametrize("name", WIDE)
def test_a_layer_of_a_real_size_takes_what_the_model_says(name: str) -> None:
    """Prints its cycles: `make long` shows them, as README and docs/timing.md quote them."""
    for found in compared(WIDE[name], measure(WIDE[name], LATENCY, wide()), WIDE_LANES):
        print(f"\nsimulated: {name}, {found.simulated} cycles, modelled {found.modelled:.0f}")
        assert abs(found.error) <= SLACK, found
        assert found.simulated == SIMULATED_LAYER, (
            "other cycles: README and docs/timing.md quote them"
        )


def test_no_step_has_the_shape_of_a_unit_run() -> None:
    shapes = [(one.config, one.scheme, one.rank) for one in REQUESTS.values()]
    assert all((one.config, one.scheme, one.rank) not in shapes for one in CASES.values())
