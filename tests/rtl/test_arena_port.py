"""Lines of banks become addresses by the host's arenas: places, refusals, errors, speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

# Least of 400,000 cycles.
LEAST = {
    "reads": 20_000, "writes": 20_000, "reads_onchip": 8_000, "writes_onchip": 8_000,
    "reads_refused": 1_500, "writes_refused": 1_500, "line_errors": 1_500, "write_errors": 1_500,
    "streamed": 20_000, "moved": 3_000, "resets": 80,
}  # fmt: skip


@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.long)])
def test_random_lines(rounds: int) -> None:
    counts = counted(run(build("arenas"), rounds * 400_000, rounds))
    assert not {name: counts[name] for name, n in LEAST.items() if counts[name] < rounds * n}


# (module, right, wrong)
MISTAKES = [
    ("line_address", "{1'b0, line} < ways[w].behind", "{1'b0, line} <= ways[w].behind"),
    ("line_address", "lives == '1 ? !recent : lives[0]", "lives[0]"),
    ("line_address", "hits[0] ? ways[0].shift : ways[1].shift", "ways[0].shift"),
    ("line_address", "&& !stale && !changed", ""),
    (
        "line_address",
        "if (changed || rst) {live, lives} <= '0;",
        "if (changed || rst) lives <= '0; if (rst) live <= '0;",
    ),
    ("line_address", "(onchip && line >= onchip_lines)", "(onchip && line > onchip_lines)"),
    ("arena_port", "read_refused ? !memory_line_valid :", "read_refused ? 1'b1 :"),
    ("arena_port", "write_refused ? !memory_written :", "write_refused ? 1'b1 :"),
    ("arena_port", "memory_written && memory_written_error", "1'b0"),
    ("arena_port", "busy ? 2'b00 : look[0] ? 2'b01 : 2'b10", "look[0] ? 2'b01 : 2'b10"),
    ("range_table", "base_high[record] <= stored[15:0]", "base_high[record] <= 16'd0"),
]


@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(tmp_path: Path, mistake: tuple[str, str, str]) -> None:
    module, right, wrong = mistake
    sources = mistaken(tmp_path, f"port/{module}.sv", right, wrong)
    done = run(build("arenas", sources=sources, folder=tmp_path / "build"), 400_000, 1)
    assert done.returncode == 1 and done.stderr
