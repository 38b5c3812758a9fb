"""The firmware's C cases (tests/c/test_firmware_*.c) on the control's hardware: the same programs
over a simulated control that runs the committed image, with the board that the case scripts."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rtl.boards_build import IMAGE
from tests.rtl.core_rig import build
from tests.rtl_rig import ROOT

pytestmark = pytest.mark.rtl

PROGRAMS = sorted(path.stem for path in (ROOT / "tests" / "c").glob("test_firmware_*.c"))
LIMIT_SECONDS = 1200
SHARE = 5  # thousandths of a case's random rounds: a control needs half a second for a list

# Cases that cannot run on a simulated control, with the reason.
HOST_ONLY = {
    "scrub-saved_up": "the firmware is not called for 100 ms; a control's core never rests",
}

# Those that are over within seconds, one or more of each program; `make rtl-slow` runs all.
FAST = {
    "generate": ("tokens", "gathers_that_differ", "redo", "the_watchdog_counts_by_token"),
    "kv": ("commit_is_redone", "table_after_commit"),
    "lists": ("good", "window"),
    "quantized": (),
    "runs": ("segments", "fence", "unit_failure", "router_record", "nonfinite", "link_test"),
    "scrub": ("between_steps", "stuck"),
    "steps": ("numbers", "failed_redo", "lists_must_hold"),
}


def cases_of(program: str) -> list[str]:
    """Names in its table, which run_cases takes as arguments."""
    source = (ROOT / "tests" / "c" / f"{program}.c").read_text()
    table = source[source.index("static const struct test_case cases[]") :]
    return re.findall(r"CASE\((\w+)\)", table)


ALL = {
    f"{program.removeprefix('test_firmware_')}-{case}": (program, case)
    for program in PROGRAMS
    for case in cases_of(program)
}
RUN = [name for name in ALL if name not in HOST_ONLY]
IS_FAST = {f"{program}-{case}" for program, cases in FAST.items() for case in cases}


def run(path: Path, case: str, **settings: int) -> subprocess.CompletedProcess[str]:
    """One case of a built program; settings as tests/rtl/core/case_control.cpp names them."""
    names = {f"LORA_TEST_{name.upper()}": str(value) for name, value in settings.items()}
    return subprocess.run(
        [path, case], env={**os.environ, "LORA_TEST_IMAGE": str(IMAGE), **names},
        capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip


def passes(name: str, **settings: int) -> None:
    program, case = ALL[name]
    done = run(build(f"cases/{program}"), case, **settings)
    assert done.returncode == 0, f"{name}, {settings}: {done.stderr}"


def test_every_case_is_here() -> None:
    """Each function test_* of a program is in its table; the lists above name cases that exist."""
    assert len(PROGRAMS) == len(FAST) == 7
    for program in PROGRAMS:
        source = (ROOT / "tests" / "c" / f"{program}.c").read_text()
        written = re.findall(r"^static void test_(\w+)\(void\) {", source, re.M)
        assert sorted(written) == sorted(cases_of(program))
    assert set(RUN) >= IS_FAST and set(HOST_ONLY) <= set(ALL)


def some(*fast: str) -> list[Any]:
    """The fast cases of all programs: these at once, the others slow."""
    slow = pytest.mark.long
    return [name if name in fast else pytest.param(name, marks=slow) for name in sorted(IS_FAST)]


@pytest.mark.parametrize(
    "name",
    [name if name in IS_FAST else pytest.param(name, marks=pytest.mark.long) for name in RUN],
)
def test_a_case_passes(name: str) -> None:
    """Registers begin with random bits; memory takes and answers as it happens."""
    passes(name, seed=1, share=SHARE)


@pytest.mark.parametrize("name", some("generate-tokens", "runs-unit_failure"))
def test_a_case_passes_behind_restarts(name: str) -> None:
    """The first registration and the first step are cut off at random cycles, and begun again."""
    passes(name, seed=2, share=SHARE, restarts=1)


@pytest.mark.parametrize("name", some("runs-segments", "runs-router_record"))
def test_a_case_passes_with_lists_between_lines(name: str) -> None:
    """The control's firmware dispatches them, its sequencer rests."""
    passes(name, seed=3, share=SHARE, shift=32)
