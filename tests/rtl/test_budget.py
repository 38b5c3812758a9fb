"""Cells a module stay within overlays/rtl/budget.yaml."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from tests.rtl_rig import ROOT

pytestmark = pytest.mark.rtl

BUDGET: dict[str, Any] = yaml.safe_load((ROOT / "overlays" / "rtl" / "budget.yaml").read_text())


@pytest.fixture(scope="module")
def tool(pytestconfig: pytest.Config) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs tools/rtl_cells.py."""
    if find_spec("pyosys") is None:
        missing = "pyosys is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "rtl_cells.py", *arguments],
            capture_output=True, text=True,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def counted(tool: Callable[..., subprocess.CompletedProcess[str]]) -> dict[str, dict[str, int]]:
    """Cells by module and kind."""
    done = tool()
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {entry.pop("module"): entry for entry in found}


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
        "card",
        "dma",
    ],
)
def test_a_unit_elaborates_without_latches(
    tool: Callable[..., subprocess.CompletedProcess[str]], top: str
) -> None:
    done = tool("--check", top)
    assert done.returncode == 0, done.stderr
    assert tool("--check", "no_such_module").returncode != 0


def check(module: str, found: dict[str, int]) -> None:
    limits = {k: v for k, v in BUDGET["modules"][module].items() if k in found}
    assert found["lut"] > 0
    over = {kind: found[kind] for kind, limit in limits.items() if found[kind] > limit}
    assert not over, f"{module}: {over} found, {limits} allowed"
    # a budget far above what is used holds nothing
    assert found["lut"] >= 0.85 * limits["lut"]


@pytest.mark.parametrize("module", [m for m, one in BUDGET["modules"].items() if "long" not in one])
def test_a_module_keeps_its_budget(counted: dict[str, dict[str, int]], module: str) -> None:
    check(module, counted[module])


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


@pytest.mark.slow
def test_the_control_of_a_board(tool: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    found, limits = count(tool, "control"), BUDGET["control"]
    check("control", found)
    luts = found["lut"] + found["lutram"]
    assert luts <= limits["lut"]
    assert luts <= limits["goal_lut"]
    assert found["ramb36"] + found["ramb18"] / 2 <= limits["ramb36"]
    assert found["uram"] <= limits["uram"]


def test_integer_lanes(counted: dict[str, dict[str, int]]) -> None:
    """Products a DSP48E2: two, of 8 and of 4 bits."""
    assert counted["integer_pair"]["dsp"] / 8 <= BUDGET["lane"]["integer"]["dsp"]


def test_an_fp16_lane(counted: dict[str, dict[str, int]]) -> None:
    limits = BUDGET["lane"]["fp16"]
    for kind, limit in limits.items():
        assert counted["fp16_lane"][kind] + counted["fp16_operand"][kind] <= limit
