"""Builds and runs tests/rtl/sequencer: the sequencer beside the firmware's dispatch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.rtl_rig import ROOT

SOURCES = ROOT / "overlays" / "rtl"
FOLDER = ROOT / "build" / "rtl" / "sequencer"


def build(sources: Path = SOURCES, folder: Path = FOLDER, opt: str = "-O2") -> Path:
    """The test program over `sources`. What does not depend on them is in FOLDER."""
    subprocess.run(
        [
            "make", "-C", ROOT / "tests" / "rtl" / "sequencer", f"BUILD={folder}",
            f"PARTS={FOLDER}", f"RTL={sources}", f"OPT={opt}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return folder / "bench"


def run(bench: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the program."""
    return subprocess.run([bench, *map(str, arguments)], capture_output=True, text=True)


def tally(bench: Path, *arguments: object) -> dict[str, Any]:
    """What a run that finds no difference has counted."""
    done = run(bench, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
