"""`lora lab model --resources` charges every module of a card: by itself, or inside another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lora_lab.timing.fit import fit, fit_names
from lora_lab.timing.wide_card import wide_names
from tools.rtl_hierarchy import instances, uncounted

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "overlays" / "rtl"
DATA = ROOT / "sdk" / "lora_lab" / "timing" / "data" / "fit.yaml"
BUDGET = yaml.safe_load((RTL / "budget.yaml").read_text())
ROWS: dict[str, Any] = BUDGET["modules"] | BUDGET["units"]
WIRES = set(yaml.safe_load(DATA.read_text())["wires"])
BELOW = instances(RTL.glob("*/*.sv"))
TOP = "card_kernel"
COUNTED = sorted(set(fit_names()) - set(wide_names()))  # parts of planned cards are no modules yet
# Arrays that a design does not have.
ABSENT = {"lora-f": {"mpu_int8"}}


def counted(design: str) -> dict[str, set[str]]:
    """Modules that a design is charged for, each with those that its count leaves out."""
    rows = [part.name for part in fit(design).parts if part.name in ROWS and part.instances > 0]
    return {ROWS[name].get("top", name): set(ROWS[name].get("apart", ())) for name in rows}


@pytest.mark.parametrize("design", COUNTED)
def test_a_design_is_charged_for_all_of_a_card(design: str) -> None:
    absent: dict[str, set[str]] = {name: set() for name in ABSENT.get(design, ())}
    missing = uncounted(BELOW, TOP, counted(design) | absent, WIRES)
    assert not missing, f"{design}: neither counted nor inside a counted one: {sorted(missing)}"


@pytest.mark.parametrize("design", COUNTED)
def test_what_a_count_leaves_out_is_charged_by_itself(design: str) -> None:
    """So parts of a module that another count has with other parameters are not forgotten."""
    charged = counted(design)
    apart = {name for parts in charged.values() for name in parts}
    assert apart <= set(charged) | WIRES | set(ABSENT.get(design, ()))


def test_what_is_left_out_of_a_count_is_there() -> None:
    """Names that nothing has would hide what they stand for."""
    for name, row in ROWS.items():
        assert set(row.get("apart", ())) <= BELOW[row.get("top", name)], name
    whole = uncounted(BELOW, TOP, {}, set())
    assert whole >= WIRES | {"board_memory", "line_ports", "port_choice", "rv32_core", "fp16_lane"}
    for name in WIRES:
        (source,) = RTL.glob(f"*/{name}.sv")
        assert "always" not in source.read_text(), name


def test_a_module_that_is_forgotten_is_noticed() -> None:
    design = counted("own-u280-4096")
    for name in ("line_ports", "dma", "control", "mpu_fp16", "vfu"):
        without = {one: apart for one, apart in design.items() if one != name}
        assert name in uncounted(BELOW, TOP, without, WIRES), name
    added = BELOW | {"vector_part": BELOW["vector_part"] | {"new"}, "new": set()}
    assert uncounted(added, TOP, design, WIRES) == {"new"}
    inside = BELOW | {"dma": BELOW["dma"] | {"new"}, "new": set()}
    assert uncounted(inside, TOP, design, WIRES) == set()
