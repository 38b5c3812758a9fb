"""Bounded proofs over modules in overlays/rtl: tests/rtl/proofs/prove_*.sv, each a module with
inputs that may do anything and what must hold meanwhile.

`python -m tools.rtl_prove [NAME ...]` (without names: all) proves each for the steps that
proofs.yaml names, from any state of the registers and a reset in the first step, or from zeros, by
Yosys' own solver, and prints a line each. Exit: 0 all hold, 1 one does not, or an unknown name,
2 wrong use. Needs the extra `rtl` (pyosys).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tools.rtl_cells import RTL, sources

PROOFS = Path(__file__).resolve().parents[1] / "tests" / "rtl" / "proofs"


def proofs() -> dict[str, Any]:
    """Name -> steps, and signals of the first step."""
    found: dict[str, Any] = yaml.safe_load((PROOFS / "proofs.yaml").read_text())
    return found


def commands(name: str, folder: Path) -> list[str]:
    """Of the tool, for one proof over the source in `folder`."""
    row = proofs()[name]
    top = f"prove_{name}"
    files = " ".join(map(str, [*sources(folder), PROOFS / f"{top}.sv"]))
    begins = row.get("first", {})
    first = " ".join(f"-set-at 1 {signal} {value}" for signal, value in begins.items())
    clocks = ["clk2fflogic"] if row.get("clocks", 1) > 1 else ["async2sync", "dffunmap"]
    return [
        f"read_slang -j 1 -D LORA_FLAT --top {top} {files}",
        f"hierarchy -top {top}", "proc", "flatten", "opt_clean", "memory -nomap", "opt_clean",
        "memory_map", *clocks, "chformal -lower", "opt -fast", "select -assert-min 1 t:$assert",
        f"sat -verify -prove-asserts -set-assumes {first or '-set-init-zero'} -tempinduct-baseonly "
        f"-maxsteps {row['steps']} {top}",
    ]  # fmt: skip


def prove(name: str, folder: Path) -> None:
    """Ends the process with status 1 where it does not hold; the log goes to standard output."""
    from pyosys import libyosys

    design = libyosys.Design()
    for line in commands(name, folder):
        libyosys.run_pass(line, design)


def holds(name: str, folder: Path = RTL) -> tuple[bool, str]:
    """Whether it does, and the log. In a process of its own: the tool ends it where it does not."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        with open(log, "w") as out:
            done = subprocess.run(
                [sys.executable, "-m", "tools.rtl_prove", "--sources", folder, "--here", name],
                cwd=PROOFS.parents[2], stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        return done.returncode == 0, log.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.rtl_prove", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="of proofs.yaml")
    parser.add_argument("--sources", type=Path, default=RTL, help="folder like overlays/rtl")
    parser.add_argument("--here", action="store_true", help="in this process, with the tool's log")
    given = parser.parse_args()
    names: list[str] = given.names or list(proofs())
    if unknown := [name for name in names if name not in proofs()]:
        print(f"{unknown[0]}: not in {PROOFS / 'proofs.yaml'}", file=sys.stderr)
        return 1
    if given.here:
        prove(names[0], given.sources)
        return 0
    failed = 0
    for name in names:
        begin = time.monotonic()
        held, log = holds(name, given.sources)
        steps = proofs()[name]["steps"]
        print(f"{name}: {'holds' if held else 'FAILS'} for {steps} steps, "
              f"{time.monotonic() - begin:.1f} s", flush=True)  # fmt: skip
        if not held:
            failed = 1
            with contextlib.suppress(BrokenPipeError):
                print(os.linesep.join(log.splitlines()[-60:]), file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
