"""Builds csrc/sim once more: simulated cards of other sources or sizes than those of
`make sim-build`."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from lora_host import sim
from tests.rtl.card_cases import WIDE_LANES
from tests.rtl_rig import ROOT

NARROW = 8  # FP16 lanes
SURROUNDINGS = ROOT / "csrc" / "sim"
AS_THEY_ARE = ROOT / "host" / "lora_host" / sim.LIBRARY


def build(folder: Path, surroundings: Path = SURROUNDINGS, **variables: object) -> Path:
    """The library, in `folder`. `variables` go to make: RTL, LANES; BUILD, where they are given."""
    target = folder / sim.LIBRARY
    if variables:
        variables.setdefault("BUILD", folder)
    given = {"ROOT": ROOT, "TARGET": target, **variables}
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:  # tests of several processes share a folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ["make", "-C", surroundings, *(f"{key}={value}" for key, value in given.items())],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return target


def wide() -> Path:
    """Cards that `make sim-build` has made, with the lanes of card.sv."""
    lanes = int(sim.load(AS_THEY_ARE).lora_sim_lanes())
    assert lanes == WIDE_LANES, f"{AS_THEY_ARE.name} has {lanes} lanes; make sim-build"
    return AS_THEY_ARE


def narrow() -> Path:
    """Cards of narrow arrays, which the timing model's constants are measured with."""
    return build(ROOT / "build" / "rtl" / "narrow_cards", LANES=NARROW)
