"""What units want of a list and a step comes out of the core's local memory as it lies there, in
the cycles that docs/rtl.md counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

# Least of 1,000 steps.
LEAST = {
    "again": 300, "measured": 250, "read_again": 300, "rows": 200_000, "selected": 40_000,
    "slots": 40_000,
}  # fmt: skip


@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.long)])
def test_random_steps(rounds: int) -> None:
    counts = counted(run(build("feed"), rounds * 1000, rounds))
    assert not {name: counts[name] for name, n in LEAST.items() if counts[name] < rounds * n}


MISTAKES = [
    ("row[r][0] ? pair[31:16] : pair[15:0]", "row[r][0] ? pair[15:0] : pair[31:16]"),
    ("walk < LORA_MAX_SCRATCH && !known[walk[6:0]]", "walk < 32'd64 && !known[walk[6:0]]"),
    ("LIST_END = 33", "LIST_END = 32"),
    ("word_t'(now.sequence_number[5:0])", "word_t'(now.sequence_number[4:0])"),
    ("+ 7'd2 >= selected", "+ 7'd3 >= selected"),
    ("if (rst) {state, asked} <= {IDLE, IDLE};", ""),
]


@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(tmp_path: Path, mistake: tuple[str, str]) -> None:
    right, wrong = mistake
    sources = mistaken(tmp_path, "card/step_feed.sv", right, wrong)
    done = run(build("feed", sources=sources, folder=tmp_path / "build"), 1000, 1)
    assert done.returncode == 1 and done.stderr
