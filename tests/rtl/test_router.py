"""One to four simulated Routers, joined by cables, gather and test links as the emulator's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import abi
from tests.rtl.bench_rig import build, counted, run
from tests.rtl.router_cycles import CYCLES, measured
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def bench() -> Path:
    """The test program over the source as it is."""
    return build("router", OPT="-O1")


# Least of what a campaign has in it, of a thousand cases.
LEAST = {
    "1_in_a_line": 20, "2_in_a_line": 20, "3_in_a_line": 20, "4_in_a_line": 20,
    "2_in_a_ring": 20, "3_in_a_ring": 20, "4_in_a_ring": 20, "stages": 20,
    "gathers": 800, "frames": 3_000, "segments": 3_000, "cycles": 200_000,
    "aborts": 30, "resets": 30, "poisons": 30, "poison_received": 30, "poison_sent": 40,
    "stale": 40, "flipped": 15, "flipped_header": 15, "dropped": 15, "duplicated": 5, "swapped": 5,
    "stale_besides": 3, "of_the_future": 15, "wrong_field": 15, "other_length": 15, "poison": 15,
    "of_a_test": 5, "garbled": 15, "blocked": 5, "blocked_and_waits": 1,
    "tests_joined": 10, "test_bad": 30, f"tests_{abi.UNIT_BUSY}": 5, f"tests_{abi.UNIT_DONE}": 60,
    f"tests_{abi.UNIT_FAILED}": 8, "of_tests_flipped": 4, "of_tests_flipped_header": 4,
    "of_tests_garbled": 4, "of_tests_dropped": 4, "of_tests_duplicated": 4, "of_tests_swapped": 2,
    "of_tests_test_link_down": 5, "changed_command": 80, "link_down": 15, "stuck": 40,
    f"status_{abi.ERR_LINK_CRC}": 60, f"status_{abi.ERR_LINK_POISON}": 10,
    f"status_{abi.ERR_LINK_DOWN}": 15, f"status_{abi.ERR_SIZE}": 30, f"status_{abi.ERR_ADDRESS}": 8,
}  # fmt: skip


@pytest.mark.parametrize("cases", [60, pytest.param(3000, marks=pytest.mark.long)])
def test_random_gathers(bench: Path, cases: int) -> None:
    """Frames, bytes, counts and errors; with aborts, resets, poison, and damage to frames."""
    found = counted(run(bench, "--cases", cases, "--seed", cases))
    assert found["cases"] == cases
    least = {kind: number * cases // 1000 for kind, number in LEAST.items() if cases >= 1000}
    least |= {"frames": 100, "gathers": 20}
    few = {kind: found.get(kind, 0) for kind in least if found.get(kind, 0) < least[kind]}
    assert not few, f"{few} found, at least {least} expected"


@pytest.mark.parametrize("shape", CYCLES)
def test_cycles_of_a_gather(bench: Path, shape: tuple[int, int]) -> None:
    assert measured(bench, *shape) == pytest.approx(CYCLES[shape], rel=0.02)


# name: (module, right, wrong)
MISTAKES = {
    "a CRC is not looked at": ("frame_receiver", "whole && crc ==", "whole || crc =="),
    "hops are not counted": ("router_lane", "header.hop - 8'd1", "header.hop"),
    "another block's columns": (
        "gather_plan", "column: column,", "column: column + size_t'(number[0]),",
    ),
    "a sum of rows of one group": (
        "lane_pieces", "slack * size_t'(row_at)", "slack * size_t'(progress.row)",
    ),
    "own bytes are summed in both lanes": (
        "lane_plan", "sums = to_next || other == 8'd0", "sums = 1'b1",
    ),
    "a sum of bytes that move within a line": (
        "lane_pieces", "comes ? file_bytes[0] : out_memory_byte == 6'd0", "1'b1",
    ),
    "bytes of the pieces before are not written": (
        "lane_pieces", "(joins ? write_bytes : 64'd0)", "64'd0",
    ),
    "pieces of two lines are one write": ("lane_pieces", "piece_memory_line == write_line", "1'b1"),
    "what has come is still expected": ("lane_plan", "due <= due - size_t'(length)", "due <= due"),
    "lines have more places than there are": (
        "line_reads", "lines_asked - oldest == (DEPTH_BITS + 1)'(DEPTH)", "1'b0",
    ),
    "a full port is not told": ("router_lane", "blocked <= !has_room", "blocked <= 1'b0"),
    "the pattern of a test is not compared": (
        "link_test", "if (differs)", "if (differs && indices[1] < 10'd4)",
    ),
    "a test's frames are not numbered": ("link_test", "head.step == now.received && ", ""),
    "a test goes on in a gather": ("router_lanes", ".stop(test_stop)", ".stop(1'b0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(bench: Path, name: str, tmp_path: Path) -> None:
    module, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, f"router/{module}.sv", right, wrong)
    mistake = build("router", sources=sources, folder=tmp_path / "build", OPT="-O1")
    done = run(mistake, "--cases", 300, "--seed", 1)
    assert done.returncode == 1 and done.stderr.startswith("case ")
