"""Builds and runs the programs that tests/rtl/*/Makefile makes of simulated modules."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.rtl_rig import ROOT, SOURCES


def built(name: str) -> Path:
    """Where tests/rtl/`name` is built, and what does not depend on the hardware source."""
    return ROOT / "build" / "rtl" / name


def build(
    name: str, target: str = "bench", *, sources: Path = SOURCES, folder: Path | None = None,
    **variables: object,
) -> Path:  # fmt: skip
    """`target` of tests/rtl/`name` over `sources`, made in `folder`, else where the sources as they
    are have theirs. `variables` go to make."""
    parts = built(name)
    folder = folder or parts
    parts.mkdir(parents=True, exist_ok=True)
    given = {"BUILD": folder, "PARTS": parts, "RTL": sources, **variables}
    with open(parts / "lock", "w") as lock:  # tests of several processes share the parts
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ["make", "-C", ROOT / "tests" / "rtl" / name,
             *(f"{key}={value}" for key, value in given.items()), folder / target],
            check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return folder / target


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a program: exit status 1 and a message where something differs."""
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=3600)


def counted(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a run that finds no difference has counted."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
