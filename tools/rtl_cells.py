"""Cells that open synthesis makes of the modules in overlays/rtl/budget.yaml, for UltraScale+.

`python tools/rtl_cells.py [MODULE ...]` (without names: all that are not `long`) prints a JSON
object a line: module, lut, ff, dsp, ramb36, ramb18, uram, lutram (LUTs that are memory).
`python tools/rtl_cells.py --check TOP` elaborates a unit and fails where it has a latch, a loop or
a signal with no or two drivers. Needs the extra `rtl` (pyosys)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

RTL = Path(__file__).resolve().parents[1] / "overlays" / "rtl"
BUDGET = RTL / "budget.yaml"
KINDS = {
    "lut": r"LUT\d",
    "ff": r"FD[RSCP]E",
    "dsp": r"DSP48E2",
    "ramb36": r"RAMB36E2",
    "ramb18": r"RAMB18E2",
    "uram": r"URAM288(_BASE)?",
}
# LUTs of each kind of distributed memory.
LUT_MEMORIES = {
    "RAM32M16": 8, "RAM32M": 4, "RAM64M8": 8, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2,
    "RAM128X1D": 4, "RAM256X1D": 8, "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4,
    "RAM512X1S": 8,
}  # fmt: skip


def sources(folder: Path = RTL) -> list[Path]:
    """All source files, the packages first."""
    files = sorted(folder.glob("*/*.sv"))
    return sorted(files, key=lambda path: not path.stem.endswith("_types"))


def check(top: str) -> None:
    """Elaborates a unit; the tool ends the process where something is wrong."""
    from pyosys import libyosys

    design = libyosys.Design()
    for line in (
        f"read_slang -j 1 --top {top} {' '.join(map(str, sources()))}",
        "proc",
        "check -assert",
        "select -assert-none t:$dlatch t:$_DLATCH_*",
    ):
        libyosys.run_pass(line, design)


def cells(module: str, parameters: Mapping[str, int]) -> dict[str, int]:
    """Cells of one module and all below it, by kind. Shift registers are counted as registers."""
    from pyosys import libyosys

    design = libyosys.Design()
    values = " ".join(f"-G {name}={value}" for name, value in parameters.items())
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "cells.json"
        for line in (
            f"read_slang -j 1 --top {module} {values} {' '.join(map(str, sources()))}",
            f"synth_xilinx -family xcup -top {module} -noiopad -flatten -nosrl",
            f"tee -q -o {found} stat -json",
        ):
            libyosys.run_pass(line, design)
        counts = json.loads(found.read_text())["design"]["num_cells_by_type"]
    found = {
        kind: sum(count for name, count in counts.items() if re.fullmatch(pattern, name))
        for kind, pattern in KINDS.items()
    }
    memories = [name for name in counts if re.match(r"RAM\d", name)]
    return found | {"lutram": sum(LUT_MEMORIES[name] * counts[name] for name in memories)}


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """The tool writes its log to file descriptor 1."""
    kept = os.dup(1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def main() -> None:
    if sys.argv[1:2] == ["--check"]:
        check(sys.argv[2])
        return
    modules = yaml.safe_load(BUDGET.read_text())["modules"]
    for name in sys.argv[1:] or [name for name, one in modules.items() if "long" not in one]:
        with quiet_output():
            counted = cells(name, modules[name].get("parameters", {}))
        print(json.dumps({"module": name, **counted}), flush=True)


if __name__ == "__main__":
    main()
