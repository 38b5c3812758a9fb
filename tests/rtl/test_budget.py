"""Cells a module stay within overlays/rtl/budget.yaml."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rtl_rig import ROOT
from tools import rtl_cells
from tools.rtl_cells import over, whole, without_copies

pytestmark = pytest.mark.rtl

BUDGET: dict[str, Any] = yaml.safe_load((ROOT / "overlays" / "rtl" / "budget.yaml").read_text())


@pytest.fixture(scope="module")
def pyosys(pytestconfig: pytest.Config) -> None:
    """A visible skip, or a failure with --require-rtl, where it is not installed."""
    if find_spec("pyosys") is None:
        missing = "pyosys is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)


@pytest.fixture(scope="module")
def tool(pyosys: None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs tools/rtl_cells.py."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.rtl_cells", *arguments],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    "top",
    [
        "mpu_unit",  # both arrays, attention, adapters and their slots in it
        "vfu",
        "sequencer",
        "control",
        "control_kernel",
        "router",
        "vector_slot",
        "port_arbiter",
        "arena_port",
        "board_memory",
        pytest.param("card_kernel", marks=pytest.mark.long),
        "dma",
    ],
)
def test_a_unit_elaborates_without_latches(
    tool: Callable[..., subprocess.CompletedProcess[str]], top: str
) -> None:
    done = tool("--check", top)
    assert done.returncode == 0, done.stderr


def check(name: str, found: dict[str, int]) -> None:
    limits = (BUDGET["modules"] | BUDGET["units"])[name]
    wrong = over(name, {kind: n for kind, n in found.items() if kind != "name"}, limits)
    assert wrong is None, wrong


def count(tool: Callable[..., subprocess.CompletedProcess[str]], module: str) -> dict[str, int]:
    done = tool(module)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


LONG = [m for m, one in BUDGET["modules"].items() if "long" in one and m != "control"]


@pytest.mark.long
@pytest.mark.parametrize("module", LONG)
def test_a_large_module_keeps_its_budget(
    tool: Callable[..., subprocess.CompletedProcess[str]], module: str
) -> None:
    check(module, count(tool, module))


SHORT = [name for name, one in BUDGET["modules"].items() if "long" not in one]


def changed(
    tool: Callable[..., subprocess.CompletedProcess[str]], names: Iterable[str]
) -> list[str]:
    """Those with another source or budget than when they were counted."""
    done = tool("--changed", *names)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_modules_that_have_changed_keep_their_budget(
    tool: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    if not (names := changed(tool, SHORT)):
        return
    done = tool(*names)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(one["name"] for one in found) == sorted(names)
    for one in found:
        check(one["name"], one)


@pytest.mark.long
def test_units_that_have_changed_keep_their_budget(
    tool: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    short = [name for name, one in BUDGET["units"].items() if "long" not in one]
    for name in changed(tool, short):
        check(name, count(tool, name))


@pytest.mark.long
@pytest.mark.parametrize("name", [*SHORT, *BUDGET["units"]])
def test_everything_keeps_its_budget(
    tool: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    check(name, count(tool, name))


def test_a_change_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the source of a module, of one below it, of a package that is named, and of the budget."""
    copy = Path(shutil.copytree(rtl_cells.RTL, tmp_path / "rtl"))
    monkeypatch.setattr(rtl_cells, "sources", partial(rtl_cells.sources, copy))
    monkeypatch.setattr(rtl_cells, "BUDGET", copy / "budget.yaml")
    names = ["w4_segments", "float_add", "int8_array", "unit_port", "card"]

    def after(path: str, right: str, wrong: str) -> set[str]:
        with rtl_cells.quiet_output():
            before = rtl_cells.sums(names)
            text = (copy / path).read_text()
            assert right in text
            (copy / path).write_text(text.replace(right, wrong, 1))
            now = rtl_cells.sums(names)
        return {name for name in names if now[name] != before[name]}

    assert after("fp/float_add.sv", "module", "\nmodule") == {*names} - {"unit_port", "card"}
    assert after("mpu/w4_passes.sv", "module", "\nmodule") == {"int8_array"}
    assert after("mpu/dot_dsp48.sv", "module", "\nmodule") == {"int8_array"}
    assert after("dma/copy_walk.sv", "module", "\nmodule") == set()  # inside what is apart
    assert after("mpu/mpu_types.sv", "package", "\npackage") == {"int8_array", "w4_segments"}
    assert after("budget.yaml", "float_add:     {lut: ", "float_add:     {lut: 1") == {"float_add"}


def test_equal_modules_are_counted_once_and_taken_as_often_as_they_are_there() -> None:
    text = """
module \\top
  cell \\leaf$top.a \\a
  cell \\leaf$top.b \\b
  cell \\leaf$top.c \\c
end
attribute \\src "one"
module \\leaf$top.a
  cell $add $12
end
attribute \\src "two"
module \\leaf$top.b
  cell $add $345
end
module \\leaf$top.c
  cell $sub $6
end
"""
    kept = without_copies(text)
    assert kept.count("module ") == 3
    assert kept.count("cell \\leaf$top.a ") == 2 and "cell \\leaf$top.c " in kept
    cells = {"top": {"half": 2, "LUT6": 1}, "half": {"leaf": 3, "FDRE": 5}, "leaf": {"LUT2": 7}}
    assert whole(cells, "top") == {"LUT2": 42, "FDRE": 10, "LUT6": 1}


@pytest.mark.slow
def test_the_control_of_a_board(tool: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    found, limits = count(tool, "control"), BUDGET["control"]
    check("control", found)
    luts = found["lut"] + found["lutram"]
    assert luts <= limits["lut"]
    assert luts <= limits["goal_lut"]
    assert found["ramb36"] + found["ramb18"] / 2 <= limits["ramb36"]
    assert found["uram"] <= limits["uram"]


def test_products_a_dsp() -> None:
    """Two, of 8 and of 4 bits; an FP16 lane has a goal. Budgets are kept, above."""
    modules, lane = BUDGET["modules"], BUDGET["lane"]
    assert modules["integer_pair"]["dsp"] / 8 <= lane["integer"]["dsp"]
    for kind, limit in lane["fp16"].items():
        assert modules["fp16_lane"][kind] + modules["fp16_operand"][kind] <= limit
