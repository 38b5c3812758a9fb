"""Cases that are slow by their measured time, beside those that a marker makes slow.

`python -m tests.slow_cases REPORT...` takes what pytest wrote with `--junitxml REPORT` and
`-o junit_duration_report=call`: cases over `SECONDS` join the list, those that took less than half
of it leave."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

SECONDS = 0.6
_LIST = Path(__file__).with_name("slow_cases.txt")


def listed() -> frozenset[str]:
    """Node ids."""
    return frozenset(_LIST.read_text().splitlines())


def measured(report: Path) -> dict[str, float]:
    """Seconds by node id, of a report's cases that passed."""
    cases = [case for case in ElementTree.parse(report).iter("testcase") if not len(case)]
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(
            case.attrib["time"]
        )
        for case in cases
    }


def updated(cases: frozenset[str], seconds: dict[str, float]) -> list[str]:
    """The list after these times."""
    kept = {case for case in cases if seconds.get(case, SECONDS) >= SECONDS / 2}
    return sorted(kept | {case for case, took in seconds.items() if took > SECONDS})


def main(reports: list[str]) -> None:
    """Writes the list anew."""
    seconds = {case: took for report in reports for case, took in measured(Path(report)).items()}
    _LIST.write_text("".join(f"{case}\n" for case in updated(listed(), seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])
