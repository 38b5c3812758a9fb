"""The table of what goes wrong with real boards' runtimes names tests that exist in every line."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "xrt" / "README.md"
CASES = 14


def test_every_case_has_a_test_that_exists() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == CASES
    for row in rows:
        _, case, xrt, slash, _ = row.split("|")
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`( \[T\])?", xrt + slash)
        assert named or "the same" in xrt, case
        for file, name, over in named:
            text = (ROOT / file).read_text()
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{case}: {file}::{name}"
            assert not over or "transport" in text, f"{case}: {file} runs over one transport"
