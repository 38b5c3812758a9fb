"""Cycles of single units, simulated alone, against the costs of a simulated card
(timing/data/sim-card.yaml): what a command takes more than a shorter one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.vector_counts import vector_counts
from lora_sdk.compile.isa import Vector
from tests.rtl.vector_rig import bits, run
from tests.rtl_rig import units_runner
from tests.unit.kernel_rig import TABLES

pytestmark = pytest.mark.rtl

PORT = 5  # cycles of arbiter and arena port, which stand between a card's unit and memory
LATENCY = 31


@pytest.fixture(autouse=True)
def memory(units: Any) -> Iterator[None]:
    """That of a card."""
    units.lora_rtl_memory(LATENCY + PORT, 0)
    yield
    units.lora_rtl_memory(1, 0)


ONES = np.ones(2048, np.float32)
HALVES = np.ones(2048, np.float16)
# Operation: fields of a row of so many columns.
OPERATIONS: dict[str, Any] = {
    "residual": lambda columns: {},
    "swiglu": lambda columns: {},
    "rms_sums": lambda columns: {"extra": columns},
    "ln_sums": lambda columns: {"extra": columns},
    "quantize": lambda columns: {"scalar": bits(3.0)},
    "row_max": lambda columns: {"extra": 1},
    "gelu_tanh": lambda columns: {},
}


def simulated(units: Any, name: str, rows: int, columns: int) -> int:
    """Cycles of one command."""
    op = getattr(abi, f"VEC_{name.upper()}")
    before = rtl.simulated_work(units).vector_cycles
    x = np.resize(HALVES, (rows, columns))
    run(
        units_runner(units), op, x, x, [(TABLES, 0, ONES)],
        **OPERATIONS[name](columns),
    )  # fmt: skip
    return rtl.simulated_work(units).vector_cycles - before


def modelled(name: str, rows: int, columns: int) -> float:
    op = getattr(abi, f"VEC_{name.upper()}")
    extra = OPERATIONS[name](columns).get("extra", 0)
    command = Vector(what=name, op=op, columns=columns, extra=extra)
    return card_costs().cycles(name, vector_counts(command, rows, 64), LATENCY)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(4, 96), (1, 224), (2, 512), (1, 1024)])
def test_a_longer_command_takes_what_its_counts_say(
    units: Any, name: str, shape: tuple[int, int]
) -> None:
    least = (1, 64)
    took = simulated(units, name, *shape) - simulated(units, name, *least)
    expected = modelled(name, *shape) - modelled(name, *least)
    # at some widths a command waits for memory once more
    assert took == pytest.approx(expected, rel=0.03, abs=LATENCY + PORT)
