"""Longest paths of units in overlays/rtl, over the netlist that open synthesis makes.

`python -m tools.rtl_timing [NAME ...]` (without names: all of overlays/rtl/timing.yaml) prints for
each unit its worst paths, across the borders of the modules in it: LUT levels of UltraScale+, with
carries and wide multiplexers as half each, and an estimate in ns. `--paths N`: the N worst ends (1
without). `--changed` prints, in JSON, the units that have another source than when they were timed.
`--record` times those again, holds them to timing.yaml and writes overlays/rtl/timed.yaml. Nothing
is placed: what an estimate is worth is in docs/rtl.md. Exit: 0 all right, 1 an unknown name or a
path that is too long, 2 wrong use. Needs the extra `rtl` (pyosys).

    python -m tools.rtl_timing float_add
    python -m tools.rtl_timing --paths 5 vfu
    python -m tools.rtl_timing --record
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.rtl_cells import (
    RTL,
    elaborate,
    quiet_output,
    run,
    source_sums,
    values_of,
    without_copies,
)
from tools.rtl_paths import Path as TimedPath
from tools.rtl_paths import worst

BUDGET = RTL / "timing.yaml"
TIMED = RTL / "timed.yaml"
HEAD = """# Sums of source and limits of units that kept them when they were timed last,
# by `python -m tools.rtl_timing --record`. make rtl and make rtl-slow time what is something else.
"""
SPARE = 0.5  # levels that a listed unit may be shorter than it says


@dataclass(frozen=True)
class Timed:
    """A unit's worst paths: by levels, by ns."""

    name: str
    by_levels: list[TimedPath]
    by_ns: list[TimedPath]

    @property
    def levels(self) -> float:
        return max((path.levels for path in self.by_levels), default=0.0)

    @property
    def ns(self) -> float:
        return max((path.ns for path in self.by_ns), default=0.0)


def rows() -> dict[str, Any]:
    """Units of the budget: top, parameters."""
    units: dict[str, Any] = yaml.safe_load(BUDGET.read_text())["units"]
    return {name: row or {} for name, row in units.items()}


def mapped(top: str, values: str) -> dict[str, Any]:
    """The flat netlist of a unit, as Yosys's JSON has it. Modules are mapped one by one, equal ones
    once, and joined then."""
    from pyosys import libyosys

    elaborated, design = libyosys.Design(), libyosys.Design()
    with tempfile.TemporaryDirectory() as folder:
        text, flat = Path(folder) / "design.il", Path(folder) / "flat.json"
        elaborate(elaborated, [top], f"--keep-hierarchy {values}")
        run(elaborated, f"write_rtlil {text}")
        text.write_text(without_copies(text.read_text()))
        run(
            design, f"read_rtlil {text}",
            f"synth_xilinx -family xcup -top {top} -noiopad -noclkbuf -nosrl -abc9",
            "flatten", "opt_clean", f"write_json {flat}",
        )  # fmt: skip
        module: dict[str, Any] = json.loads(flat.read_text())["modules"][top]
    return module


def timed(name: str, count: int = 1) -> Timed:
    """The `count` worst ends of a unit."""
    row = rows()[name]
    delays = yaml.safe_load(BUDGET.read_text())["delays"]
    with quiet_output():
        netlist = mapped(row.get("top", name), values_of(row))
    by_levels, by_ns = worst(netlist, delays, count)
    return Timed(name, by_levels, by_ns)


def over(found: Timed) -> str | None:
    """What is wrong with a unit's longest paths."""
    budget = yaml.safe_load(BUDGET.read_text())
    limits, listed = budget["limits"], budget["over"].get(found.name)
    allowed = listed or limits
    if found.levels > allowed["levels"] or found.ns > allowed["ns"]:
        path = found.by_levels[0] if found.levels > allowed["levels"] else found.by_ns[0]
        return (
            f"{found.name}: {found.levels:g} levels, {found.ns:.2f} ns found, "
            f"{allowed['levels']:g} and {allowed['ns']:g} allowed: shorten {path}"
        )
    if listed and found.levels <= limits["levels"] and found.ns <= limits["ns"]:
        return f"{found.name}: {found.levels:g} levels, {found.ns:.2f} ns: take it off the list"
    if listed and found.levels < listed["levels"] - SPARE:
        return f"{found.name}: {found.levels:g} levels, {listed['levels']:g} listed: lower that"
    return None


def sums(names: Sequence[str]) -> dict[str, str]:
    """Of source and limits."""
    budget = yaml.safe_load(BUDGET.read_text())
    units = rows()
    made = source_sums({name: units[name] for name in names})
    rules = {key: budget[key] for key in ("limits", "delays")}
    return {
        name: hashlib.sha256(
            json.dumps([made[name], rules, budget["over"].get(name)], sort_keys=True).encode()
        ).hexdigest()[:12]
        for name in names
    }


def changed(names: Sequence[str]) -> list[str]:
    """Which of these are not what was timed last."""
    known = yaml.safe_load(TIMED.read_text()) if TIMED.exists() else {}
    with quiet_output():
        now = sums(names)
    return [name for name in names if known.get(name) != now[name]]


def record(names: Sequence[str]) -> int:
    """Times what has changed and writes down what keeps its limits."""
    failed = 0
    for name in changed(names):
        found = timed(name)
        print(shown(found), flush=True)
        if wrong := over(found):
            print(wrong, file=sys.stderr)
            failed = 1
            continue
        known: Mapping[str, str] = yaml.safe_load(TIMED.read_text()) if TIMED.exists() else {}
        both = {**known, **sums([name])}
        TIMED.write_text(HEAD + "".join(f'{one}: "{both[one]}"\n' for one in sorted(both)))
    return failed


def shown(found: Timed) -> str:
    """For people: a line a unit, then its paths."""
    lines = [f"{found.name}: {found.levels:g} levels, {found.ns:.2f} ns"]
    lines += [f"  {path}" for path in dict.fromkeys([*found.by_levels, *found.by_ns])]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.rtl_timing", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="units of timing.yaml")
    parser.add_argument("--paths", type=int, default=1, help="ends a unit, the worst first")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--changed", action="store_true", help="print those to be timed again")
    action.add_argument("--record", action="store_true", help="time these and write that down")
    given = parser.parse_args()
    known = rows()
    if unknown := [name for name in given.names if name not in known]:
        print(f"{unknown[0]}: not in {BUDGET}", file=sys.stderr)
        return 1
    names: list[str] = given.names or [name for name, row in known.items() if "long" not in row]
    if given.changed:
        print(json.dumps(changed(names)))
        return 0
    if given.record:
        return record(names)
    failed = 0
    for name in names:
        found = timed(name, given.paths)
        print(shown(found), flush=True)
        if wrong := over(found):
            print(wrong, file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
