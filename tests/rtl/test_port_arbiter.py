"""Several units on one memory port: turns, tags, order of reads and writes of a line, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import mistaken

pytestmark = pytest.mark.rtl

# Least of 100,000 cycles.
LEAST = {
    "reads": 8_000, "writes": 5_000, "behind_writes": 600, "lines_a_cycle": 3_000, "waited": 15_000,
    "line_errors": 700, "write_errors": 500, "resets": 8, "all_writes": 1_000,
}  # fmt: skip


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.long)])
def test_random_units(rounds: int) -> None:
    counts = counted(run(build("arbiter"), rounds * 100_000, rounds))
    assert not {name: counts[name] for name, n in LEAST.items() if counts[name] < rounds * n}


MISTAKES = [
    ("read_behind <= read_meets;", "read_behind <= '0;"),
    ("write_behind <= write_meets;", "write_behind <= '0;"),
    ("read_meets[i] = open[i] && !over[i] &&", "read_meets[i] = open[i] && !over[i] && i != 3 &&"),
    ("&& !(&open);", ";"),
    ("asks[u] && u > int'(last)", "asks[u] && u >= int'(last)"),
    ("(!read_valid || read_ready)", "1'b1"),
    ("open_unit[free] <= writer;", "open_unit[free] <= last_writer;"),
]


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed(tmp_path: Path, mistake: tuple[str, str]) -> None:
    right, wrong = mistake
    sources = mistaken(tmp_path, "port/port_arbiter.sv", right, wrong)
    done = run(build("arbiter", sources=sources, folder=tmp_path / "build"), 100_000, 1)
    assert done.returncode == 1 and done.stderr
