"""Builds and runs tests/rtl/dma: a simulated DMA unit beside the emulator's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.rtl_rig import ROOT

SOURCES = ROOT / "overlays" / "rtl"
FOLDER = ROOT / "build" / "rtl" / "dma"


def build(sources: Path = SOURCES, folder: Path = FOLDER, opt: str = "-O0") -> Path:
    """The test program over `sources`. What does not depend on them is in FOLDER."""
    subprocess.run(
        [
            "make", "-C", ROOT / "tests" / "rtl" / "dma", f"BUILD={folder}",
            f"PARTS={FOLDER}", f"RTL={sources}", f"OPT={opt}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return folder / "bench"


def run(bench: Path, cases: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Runs the program: exit status 1 and a message where something differs."""
    command: list[str | Path] = [bench, "--cases", str(cases), "--seed", str(seed)]
    return subprocess.run(command, capture_output=True, text=True)


def tally(bench: Path, cases: int, seed: int) -> dict[str, int]:
    """What a run that finds no difference has counted."""
    done = run(bench, cases, seed)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found
