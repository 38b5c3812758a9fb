"""Builds and runs tests/rtl/crossing: cells and ports between unrelated clocks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.rtl import bench_rig
from tests.rtl_rig import SOURCES

FOLDER = bench_rig.built("crossing")


def build(target: str, sources: Path = SOURCES, folder: Path = FOLDER, opt: str = "-O2") -> Path:
    """The program `target` over `sources`."""
    return bench_rig.build("crossing", target, sources=sources, folder=folder, OPT=opt)


def run(program: Path, *arguments: object) -> tuple[int, str]:
    """(exit status, what it said)."""
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=600
    )
    return done.returncode, done.stdout


def counts(program: Path, *arguments: object) -> dict[str, Any]:
    """What a run that finds nothing wrong has counted."""
    status, said = run(program, *arguments)
    assert status == 0, said
    found: dict[str, Any] = json.loads(said)
    return found
