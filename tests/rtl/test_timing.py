"""Longest paths of units stay within overlays/rtl/timing.yaml."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from tests.rtl_rig import ROOT
from tools import rtl_timing
from tools.rtl_paths import Path, worst

pytestmark = pytest.mark.rtl

BUDGET: dict[str, Any] = yaml.safe_load((ROOT / "overlays" / "rtl" / "timing.yaml").read_text())
DELAYS = BUDGET["delays"]
SHORT = [name for name, row in BUDGET["units"].items() if "long" not in (row or {})]


@pytest.fixture
def pyosys(pytestconfig: pytest.Config) -> None:
    """A visible skip, or a failure with --require-rtl, where it is not installed."""
    if find_spec("pyosys") is None:
        missing = "pyosys is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.rtl_timing", *arguments],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_units_that_have_changed_keep_their_limits(pyosys: None) -> None:
    done = tool("--changed", *SHORT)
    assert done.returncode == 0, done.stderr
    if names := json.loads(done.stdout):
        done = tool(*names)
        assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", BUDGET["units"])
def test_every_unit_keeps_its_limits(pyosys: None, name: str) -> None:
    done = tool(name)
    assert done.returncode == 0, done.stderr


def test_what_is_listed_is_above_the_limits_and_says_why() -> None:
    limits = BUDGET["limits"]
    for name, row in BUDGET["over"].items():
        assert name in BUDGET["units"]
        assert row["levels"] > limits["levels"] or row["ns"] > limits["ns"], name
        assert len(row["why"]) > 20, name


def cell(kind: str, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]) -> dict[str, Any]:
    ways = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": kind, "parameters": {}, "port_directions": ways, "connections": inputs | outputs,
    }  # fmt: skip


def netlist(levels: int, carries: int) -> dict[str, Any]:
    """A flop, LUTs in a row, a chain of carries behind the last, a flop."""
    cells = {"first": cell("FDRE", {"C": [0], "D": [1]}, {"Q": [100]})}
    for place in range(levels):
        cells[f"lut{place}"] = cell(
            "LUT2", {"I0": [100 + place], "I1": ["0"]}, {"O": [101 + place]}
        )
    end = 100 + levels
    for place in range(carries):
        chain: list[Any] = [200 + place - 1] if place else ["0"]
        select = [end] if place == 0 else ["0"]
        inputs = {"CI": chain, "S": [*select, "0", "0", "0"], "DI": ["0"] * 4, "CYINIT": ["0"]}
        sums = [300 + 4 * place + bit for bit in range(4)]
        carry: list[Any] = ["x", "x", "x", 200 + place]
        cells[f"carry{place}"] = cell("CARRY4", inputs, {"O": sums, "CO": carry})
    if carries:
        end = 300 + 4 * (carries - 1) + 3
    cells["last"] = cell("FDRE", {"C": [0], "D": [end]}, {"Q": [2]})
    return {
        "cells": cells,
        "ports": {"clk": {"direction": "input", "bits": [0]}},
        "netnames": {"begin": {"bits": [100]}, "result": {"bits": [2]}},
    }


def longest(module: dict[str, Any]) -> Path:
    by_levels, by_ns = worst(module, DELAYS, 1)
    assert by_levels == by_ns
    return by_levels[0]


def test_levels_and_delays_of_a_row_of_luts() -> None:
    path = longest(netlist(3, 0))
    assert (path.start, path.end, path.levels, path.cells) == ("begin", "result", 3, "3 lut")
    wanted = (
        DELAYS["clock"] + 3 * (DELAYS["net"] + DELAYS["lut"]) + DELAYS["inside"] + DELAYS["setup"]
    )
    assert path.ns == pytest.approx(wanted)


def test_a_chain_of_32_bits_is_four_carries_of_a_half() -> None:
    path = longest(netlist(1, 8))
    assert path.levels == 1 + 0.5 + 7 * 0.25
    assert path.cells == "8 carry, 1 lut"


def test_a_loop_is_refused() -> None:
    module = netlist(2, 0)
    module["cells"]["lut0"]["connections"]["I1"] = [102]
    with pytest.raises(ValueError, match="a loop without a flop"):
        worst(module, DELAYS, 1)


def test_an_unknown_cell_is_refused() -> None:
    module = netlist(1, 0)
    module["cells"]["lut0"]["type"] = "SB_LUT4"
    with pytest.raises(ValueError, match="lut0 is a SB_LUT4: expected cells of UltraScale"):
        worst(module, DELAYS, 1)


def found(name: str, levels: float, ns: float) -> rtl_timing.Timed:
    path = Path("a", "b", levels, ns, "")
    return rtl_timing.Timed(name, [path], [path])


def test_what_is_too_long_too_short_or_listed_for_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    budget = BUDGET | {"over": {"listed": {"levels": 12, "ns": 6.0, "why": "it is"}}}
    (tmp_path / "timing.yaml").write_text(yaml.safe_dump(budget))
    monkeypatch.setattr(rtl_timing, "BUDGET", tmp_path / "timing.yaml")
    assert rtl_timing.over(found("one", 8, 4.0)) is None
    assert "shorten a to b" in (rtl_timing.over(found("one", 8.25, 3.0)) or "")
    assert "shorten a to b" in (rtl_timing.over(found("one", 7, 4.1)) or "")
    assert rtl_timing.over(found("listed", 12, 5.0)) is None
    assert "shorten" in (rtl_timing.over(found("listed", 12.25, 5.0)) or "")
    assert "lower that" in (rtl_timing.over(found("listed", 11, 5.0)) or "")
    assert "take it off the list" in (rtl_timing.over(found("listed", 8, 3.0)) or "")
