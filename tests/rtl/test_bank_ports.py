# SPDX-License-Identifier: Apache-2.0
"""Lines of banks for several readers, each with a bank of its own as channels have it, or of all
banks as attention units do: places, refusals, errors, speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, built, counted, run
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

# Least of 200,000 cycles.
LEAST = {
    "reads": 25_000, "refused": 2_000, "errors": 1_200, "streamed": 20_000, "moved": 1_500,
    "resets": 40, "forgotten": 100,
}  # fmt: skip


@pytest.mark.parametrize("banks", [1, 64])
@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=pytest.mark.long)])
def test_random_lines(banks: int, rounds: int) -> None:
    bench = build("banks", folder=built("banks") / str(banks), BANKS=banks)
    counts = counted(run(bench, rounds * 200_000, rounds))
    assert not {name: counts[name] for name, n in LEAST.items() if counts[name] < rounds * n}


# (file, right, wrong), with a bank a reader.
MISTAKES = [
    ("port/line_address", "if (changed || rst) lives <= '0;", "if (rst) lives <= '0;"),
    ("port/line_address", "(fills) ways[victim] <= arena;", "(fills) ways[!victim] <= arena;"),
    ("port/line_address", "!hits[0];\n      if (changed", "'0;\n      if (changed"),
    ("port/line_address", "{1'b0, line} < ways[w].behind", "{1'b0, line} <= ways[w].behind"),
    ("port/line_address", "&& !stale && !changed", ""),
    ("card/bank_ports", "!line_valid[i] && bank_line_ready[i]", "bank_line_ready[i]"),
    ("card/bank_ports", "!busy && look[next]", "look[next]"),
    ("card/bank_ports", "line_valid[i] && line_error[i]", "line_error[i]"),
    ("card/bank_ports", "arena_word == 11'(LORA_REG_ARENA_COUNT / 4)", "1'b0"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(tmp_path: Path, mistake: tuple[str, str, str]) -> None:
    module, right, wrong = mistake
    sources = mistaken(tmp_path, f"{module}.sv", right, wrong)
    done = run(build("banks", sources=sources, folder=tmp_path / "build"), 200_000, 1)
    assert done.returncode == 1 and done.stderr
