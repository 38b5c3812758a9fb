"""Several attention units that share a command, each with a port of its own for K and V: bytes,
counts and the first row of the NumPy model, aborts and resets at any cycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from tests.rtl.attention_rig import KINDS, Attention, anything, bits
from tests.rtl.disturbed_rig import disturbed
from tests.rtl.test_disturbed_units import ATTENTION_STATES, check
from tests.rtl_rig import build, first_then_long, mistaken

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

UNITS = 4
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


LONG = ((4, 4), (2, 1), (8, 4))


@pytest.fixture(
    scope="module", params=[(UNITS, 2), *(pytest.param(n, marks=pytest.mark.long) for n in LONG)]
)
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """So many units, and so many with lanes of FP16. Banks 0 to 5 are read by their own ports;
    pages lie in 4 to 6."""
    folder = tmp_path_factory.mktemp("units")
    units, floats = request.param
    return build(folder, unit="attention", attentions=units, floats=floats)


@EVERY_KIND
@pytest.mark.parametrize(
    "heads", [(8, 4, 2), (9, 3, 3), (7, 7, 1), (5, 1, 5), (1, 1, 1), (13, 7, 2)]
)
def test_heads_of_each_unit(several: Any, kind: str, heads: tuple[int, int, int]) -> None:
    assert Attention(kind, 40, (70, 33, 5), 3, heads, seed=heads[0]).same(several)


@EVERY_KIND
def test_a_command_may_begin_within_a_group(several: Any, kind: str) -> None:
    fields = {"q_first": 7, "slope_kind": abi.SLOPE_BF16_POSITION}
    assert Attention(kind, 16, (70, 33, 5), 3, (7, 4, 3), fields=fields).same(several)


@EVERY_KIND
def test_slopes_windows_paths_and_spilled_pages(several: Any, kind: str) -> None:
    fields = {"slope_kind": abi.SLOPE_DISTANCE, "cap": bits(1.7), "window": 34}
    case = Attention(kind, 8, (130, 200, 7), 3, (6, 6, 1), (3, 9), fields=fields, spills=True)
    assert case.same(several)
    assert Attention(kind, 16, (30, 0, 0), 1, (4, 4, 1), path=(119, 120)).same(several)


def test_each_command_finds_a_unit_that_has_it(several: Any) -> None:
    """Of static INT8 K and V: plain, with slopes, with a cap, plain again."""
    slopes = {"slope_kind": abi.SLOPE_DISTANCE}
    for fields in ({}, slopes, {"cap": bits(1.7)}, {"cap": bits(-0.0)}, {}):
        assert Attention("int8", 40, (70, 33, 5), 3, (9, 9, 1), fields=fields).same(several)


@EVERY_KIND
def test_values_that_are_not_finite(several: Any, kind: str) -> None:
    """Their count is that of all units, their first row the first of any."""
    for seed in range(3):
        case = Attention(
            kind, 8, (1, 2, 35), 6, (5, 5, 1), path=(0, 2), draw=anything, seed=seed
        )  # fmt: skip
        assert case.same(several)


def test_selected_rows_and_slow_memory(several: Any) -> None:
    several.lora_rtl_memory(40, 90)
    try:
        case = Attention("fp16", 40, (70, 4, 33), 3, (8, 4, 2), selected=(1, 4, 6))
        assert case.same(several)
    finally:
        several.lora_rtl_memory(0, 0)


@pytest.mark.parametrize("attempts", [12, pytest.param(100, marks=pytest.mark.long)])
def test_aborts_and_resets_at_any_cycle(several: Any, attempts: int) -> None:
    capped = {"slope_kind": abi.SLOPE_DISTANCE, "cap": bits(30.0)}
    cases = [Attention(kind, 16, (40, 3, 0), 2, (6, 3, 2), seed=1) for kind in KINDS]
    cases.append(Attention("int8", 16, (5, 3, 0), 2, (3, 3, 1), seed=1, fields=capped))
    with disturbed(several, "attention", attempts, seed=4) as counts:
        right = all([case.same(several) for case in cases])
    check(counts, {
        "aborts": attempts, "aborts_with_reads": attempts // 6, "resets": attempts // 3,
        "power_ups": attempts // 12,
    })  # fmt: skip
    assert right and (attempts < 100 or len(counts.missing(1, ATTENTION_STATES)) <= 8)


def differs(units: Any, *cases: Attention) -> bool:
    return not all(case.same(units) for case in cases)


MISTAKES = {
    "heads of another unit": (
        "attention/head_walk.sv", "(turn & last_unit) == unit",
        "(turn & last_unit) == (unit & 3'd1)",
    ),
    "a row of another unit": (
        "attention/attention_units.sv", ".turn(looks[u] && looker == LOG'(u))", ".turn(1'b1)",
    ),
    "the first row of the last unit": (
        "attention/attention_units.sv", "first_rows[u] < nonfinite_row", "u == UNITS - 1",
    ),
    "done when one is": (
        "attention/attention_units.sv", "runs && (waits & ~ends) == '0", "runs && ends != '0",
    ),
    "a cap of a unit that has none": (
        "attention/attention_units.sv", "&& cap[30:0] == 31'd0", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    wrong = build(
        tmp_path / "build", mistaken(tmp_path, *MISTAKES[name]), unit="attention", attentions=UNITS,
        floats=UNITS,
    )  # fmt: skip
    assert differs(
        wrong,
        Attention("fp16", 40, (70, 33, 5), 3, (9, 9, 1), (2, 5)),
        Attention("int8", 40, (70, 33, 5), 3, (9, 9, 1), fields={"cap": bits(1.7)}),
        *(
            Attention("fp16", 8, (1, 2, 35), 6, (5, 5, 1), (0, 2), anything, seed=s)
            for s in range(3)
        ),
    )
