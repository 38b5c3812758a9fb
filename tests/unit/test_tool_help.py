"""The help of tools that read the hardware source, and their answers to wrong use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT


def run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("tool", ["rtl_cells", "rtl_crossings"])
def test_help_has_an_example(tool: str) -> None:
    done = run(tool, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert f"\n    python -m tools.{tool}" in done.stdout


@pytest.mark.parametrize("action", [(), ("--check",), ("--changed",), ("--record",)])
def test_an_unknown_name_is_refused(action: tuple[str, ...]) -> None:
    done = run("rtl_cells", *action, "vfu", "no_such_module")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("no_such_module: not in ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("--check",), ("--chek", "vfu"), ("--changed", "--record", "vfu")]
)
def test_wrong_use_is_refused(arguments: tuple[str, ...]) -> None:
    done = run("rtl_cells", *arguments)
    assert done.returncode == 2 and done.stdout == "" and "usage: " in done.stderr
