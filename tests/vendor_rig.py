"""Runs the vendor build with what is recorded in the place of the vendor's tools (tests/vendor)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lora_host
import lora_sdk
from lora_host.overlay import load_overlay
from tools.vendor_build.files import SCRIPTS, write_files
from tools.vendor_build.kernels import RTL, kernel_row
from tools.vendor_build.plan import Plan, make_plan

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "tests" / "vendor"
BIN = VENDOR / "bin"


def environment(record: Path, tools: bool = True) -> dict[str, str]:
    """Of a build whose tools are those of tests/vendor/bin."""
    # where this process has them from: the checkout or an environment
    packages = [str(Path(one.__file__).parents[1]) for one in (lora_sdk, lora_host)]
    path = [Path(sys.executable).parent, *([BIN] if tools else []), os.environ["PATH"]]
    return os.environ | {
        "PATH": os.pathsep.join(map(str, path)), "RECORD": str(record),
        "PYTHONPATH": os.pathsep.join(packages),
    }  # fmt: skip


def planned(overlay: str, kernel: str = "control", rtl: Path = RTL) -> Plan:
    return make_plan(load_overlay(overlay), kernel_row(kernel, rtl), rtl)


def packaged(
    plan: Plan, folder: Path, script: Path = SCRIPTS / "package.tcl"
) -> subprocess.CompletedProcess[str]:
    """Runs the packaging script on the files of a plan; folder/record has the calls."""
    write_files(plan, folder)
    return subprocess.run(
        ["tclsh", VENDOR / "recorder.tcl", script, folder / "plan.tcl"], cwd=folder,
        env=environment(folder / "record"), capture_output=True, text=True,
    )  # fmt: skip


def calls(folder: Path) -> list[list[str]]:
    """What was recorded: command and arguments."""
    return [line.split("\t") for line in (folder / "record").read_text().splitlines()]


def made(
    target: str, *variables: str, record: Path, tools: bool = True
) -> subprocess.CompletedProcess[str]:
    """`make -C overlays/rtl target variables`."""
    return subprocess.run(
        ["make", "-s", "-C", ROOT / "overlays" / "rtl", target, 
         f"PYTHON={sys.executable}", *variables],
        env=environment(record, tools), capture_output=True, text=True,
    )  # fmt: skip
