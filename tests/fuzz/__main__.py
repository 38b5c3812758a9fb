"""Fuzzing by coverage: `python -m tests.fuzz --seconds 600`, or `--target NAME --replay FILE`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from pathlib import Path

from tests.fuzz.campaign import C_TARGETS, Outcome, build, campaign, replay
from tests.fuzz.targets import TARGETS

ALL = [*C_TARGETS, *TARGETS]


def parser() -> argparse.ArgumentParser:
    """Its arguments."""
    known = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    known.add_argument("--target", action="append", choices=ALL, help="repeat for several [all]")
    known.add_argument("--seconds", type=int, default=600, help="for all targets together [600]")
    known.add_argument("--jobs", type=int, default=1, help="targets at a time [1]")
    known.add_argument("--replay", type=Path, nargs="*", help="inputs [all that are committed]")
    known.add_argument("--json", action="store_true", help="print one JSON object")
    known.add_argument("--list", action="store_true", help="print the targets' names")
    return known


def missing() -> str | None:
    """What fuzzing needs and is not there."""
    if importlib.util.find_spec("atheris") is None:
        return "atheris is not installed; expected the extra fuzz: pip install '.[fuzz]'"
    if shutil.which("clang") is None:
        return "clang is not installed; expected Debian's clang and libclang-rt-dev"
    return None


def show(outcomes: list[Outcome], as_json: bool) -> None:
    """A table, or one JSON object."""
    total = sum(outcome.executions for outcome in outcomes)
    if as_json:
        print(json.dumps({"executions": total, "targets": [one.as_dict() for one in outcomes]}))
        return
    print(f"{'target':20}{'executions':>12}{'edges':>8}  found")
    for one in outcomes:
        print(f"{one.target:20}{one.executions:12,}{one.covered:8,}  {' '.join(one.found) or '-'}")
        for line in one.said:
            print(f"    {line}")
    print(f"{'all':20}{total:12,}")


def main() -> int:
    """0: nothing found; 1: a fault, or a target that did not run; 2: a wrong argument."""
    known = parser()
    given = known.parse_args()
    targets = given.target or ALL
    if given.list:
        print("\n".join(targets))
        return 0
    if given.replay is not None:
        if given.replay and len(targets) != 1:
            known.error("--replay FILE: name one --target whose inputs these are")
        return max(replay(target, given.replay) for target in targets)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    build()
    outcomes = campaign(targets, given.seconds, given.jobs)
    show(outcomes, given.json)
    return 1 if any(one.found or one.said for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
