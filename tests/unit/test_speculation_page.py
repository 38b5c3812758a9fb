"""docs/speculation.md says of the demo model what its table and the timing model say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lora_lab.spec_tuning.modelled import OverlayCost
from lora_lab.timing import step as steps
from lora_sdk import demo_model_path
from lora_sdk.model.config import load_config
from lora_sdk.spec.table import (
    Choice,
    CurveRecord,
    SpeculationTable,
    find_table,
    load_tables,
)

DEMO = demo_model_path()
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "speculation.md").read_text()
TABLES = load_tables(DEMO / "speculation.json")


def rows(head: str) -> list[list[str]]:
    """The cells of the page's table whose first line begins with `head`, without its two heads."""
    text = PAGE[PAGE.index(head) :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")][2:]


def table(objective: str, proposer: str, boards: int) -> SpeculationTable:
    (found,) = [
        one
        for one in TABLES
        if (one.objective, one.measurement.proposer, one.boards, one.board)
        == (objective, proposer, boards, "u280")
    ]
    return found


def said(choice: Choice, digits: bool = True) -> str:
    if choice.rows == 1:
        return "off"
    return f"{choice.speedup:.2f} ({choice.rows}{' rows' if digits else ''})"


def curves() -> dict[str, CurveRecord]:
    low, high = table("modelled", "lookup", 1).measurement.curves
    assert high.context == 128
    draft, head = (table("modelled", name, 1).measurement for name in ("draft", "eagle3"))
    return {
        "`demo_draft`": draft.curves[0], "`demo_eagle3`": head.curves[0],
        "look-up, contexts below 128": low, "look-up, others": high,
    }  # fmt: skip


def test_tokens_per_round_are_the_tables() -> None:
    expected = []
    for name, curve in curves().items():
        measured = [f"{curve.aat[size]:.2f}" for size in (2, 4, 8, 16, 32)]
        use = "used" if curve.used == "fit" else "measurement used"
        expected.append([name, *measured, f"R2 {curve.r2:.3f}, {use}"])
    assert rows("| draft | 2 |") == expected


def test_modelled_gains_are_the_tables() -> None:
    expected = []
    for boards in (1, 2, 4, 8):
        look_up = table("modelled", "lookup", boards)
        drafts = [table("modelled", name, boards) for name in ("draft", "eagle3")]
        expected.append(
            [
                str(boards),
                said(look_up.choice(128), boards == 1),
                said(look_up.choice(724), False),
                *(said(one.choice(128), False) for one in drafts),
            ]
        )
    assert rows("| boards | look-up, context 128 |") == expected


def test_gains_by_wall_clock_are_the_tables_that_auto_follows() -> None:
    """And the page names their machine."""
    expected = []
    for boards in (1, 2, 4, 8):
        shipped = table("wall", "lookup", boards)
        assert find_table(DEMO, "lora_f_u280", boards, "wall") == shipped
        assert f"`{shipped.machine}`" in PAGE
        expected.append([str(boards), *(said(shipped.choice(at)) for at in (1, 128))])
    assert rows("| boards | below 128, wall clock |") == expected
    assert [one.boards for one in TABLES if one.objective == "wall"] == [1, 2, 4, 8]


@pytest.mark.parametrize("boards", [1, 8])
def test_the_tables_times_are_the_timing_models(boards: int) -> None:
    """A table made with an older model is made again."""
    shipped = table("modelled", "lookup", boards)
    cost = OverlayCost(shipped.overlay, load_config(DEMO), boards)
    limits = [*(choice.context for choice in shipped.choices[1:]), cost.context + 1]
    for choice, limit in zip(shipped.choices, limits, strict=True):
        plain = cost.seconds(steps.decode((choice.context + limit - 1) // 2))
        assert plain == pytest.approx(choice.plain_s, rel=0.01)


def test_no_other_gain_of_look_up_is_claimed() -> None:
    gains = {f"{c.speedup:.1f}" for t in TABLES if t.objective == "wall" for c in t.choices}
    claimed = re.findall(r"[Ll]ook-up is (\d\.\d)\d* times", " ".join(PAGE.split()))
    assert set(claimed) <= gains
