"""The sequencer runs lists as the firmware's dispatch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import abi
from lora_lab.timing.channel_counts import AHEAD
from lora_sdk.compile.isa import encode
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from tests.rtl.bench_rig import build, built, counted, run
from tests.rtl_rig import mistaken
from tests.unit.test_timing_control import DURATIONS, llama_plan

pytestmark = pytest.mark.rtl

UNITS = (abi.UNIT_MPU, abi.UNIT_VFU, abi.UNIT_ROUTER, abi.UNIT_DMA)


@pytest.fixture(scope="module")
def bench() -> Path:
    """The test program over the source as it is."""
    return build("sequencer")


@pytest.fixture(scope="module")
def further() -> Path:
    """The same, of a sequencer that tells the MPU AHEAD commands beyond the one that runs."""
    return build("sequencer", folder=built("sequencer") / "further", AHEAD=AHEAD)


# Least of what a campaign has in it, of a thousand lists. Failures by their first cause, as
# tests/rtl/sequencer/tally.hpp names them; commands as units have run them.
LEAST = {
    "unit_errors": 20, "forgotten": 15, "link_errors": 15, "poison_received": 8, "hangs": 30,
    "waits": 60, "damaged_chunks": 30, "bus_errors": 18, "poison_sent": 100,
    "aborts": 50, "resets": 50, "dry": 150, "ballots": 60, "fences": 700, "nonfinite": 400,
    "selected": 6_000, "packed": 700, "of_votes": 1_400, "adapters": 4_000,
    "wait_groups": 10_000, "wait_segments": 4_500, "signal_segments": 7_000, "signal_heads": 2_500,
    "segments_of_running_gathers": 50_000, "beyond_the_window": 20, "without_rows": 2,
    "refused": 10, "reached": 10,  # by the window alone
}  # fmt: skip
RARE = {"saturated": 1}  # counters, of ten thousand lists


@pytest.mark.parametrize("lists", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_lists(bench: Path, lists: int) -> None:
    """Starts, counters, records and errors; with faults, hangs, damage, aborts, resets."""
    has_all(counted(run(bench, "--lists", lists, "--seed", lists)), lists, LEAST)


def has_all(found: dict[str, int], lists: int, least_of: dict[str, int]) -> None:
    assert found["lists"] == lists
    least = {kind: number * lists // 1000 for kind, number in least_of.items()}
    least |= {kind: number * lists // 10_000 for kind, number in RARE.items()}
    few = {kind: found.get(kind, 0) for kind in least if found.get(kind, 0) < least[kind]}
    assert not few, f"{few} found, at least {least} expected"


@pytest.mark.parametrize("lists", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_lists_where_the_mpu_is_told_three(further: Path, lists: int) -> None:
    """As a card with channels has it."""
    found = counted(run(further, "--lists", lists, "--seed", lists))
    has_all(found, lists, LEAST | {"told_further_ahead": 300})


@pytest.mark.parametrize(("boards", "started"), [(1, 617), (4, 814)])
def test_gap_between_commands(bench: Path, tmp_path: Path, boards: int, started: int) -> None:
    """LLaMA2-7B in W4A8, one row, units that take time: cycles in which none runs."""
    config, plan = llama_plan(boards)
    path = tmp_path / "list"
    path.write_bytes(encode(lower(config, plan, 0, unit_scales(config)), plan, 0, 0))
    found = counted(run(bench, "--measure", path, "--", *(DURATIONS[unit] for unit in UNITS)))
    assert found["started"] == started
    assert 0 < found["idle"] / (started - 1) <= 6  # the goal is 20
    assert found["before"] <= 150 and found["after"] <= 50


MISTAKES = {
    "counters turn over": ("counter_file", "sum[16] ? 16'hffff : sum[15:0]", "sum[15:0]"),
    "a rise wakes nobody": ("unit_slot", "leaves || raised) changed", "leaves) changed"),
    "a fence looks at running units alone": (
        "sequencer",
        "if (running[u] || place[u] < next_index[LORA_UNIT_CONTROL]) all_before",
        "if (running[u]) all_before",
    ),
    "an abort forgets its burst": (
        "list_fetch",
        "DATA: if (!(write && r_last)) state <= DROP;",
        "DATA: state <= IDLE;",
    ),
    "a seal is not looked at": ("list_fetch", "!damaged && seal == seal_expected", "!damaged"),
}
MORE_MISTAKES = {
    "bursts cross pages": (
        "list_fetch",
        "7'(lines) < page_lines ? lines : page_lines[4:0]",
        "lines",
    ),
    "chunks are overwritten": (
        "list_fetch",
        "else if (published - oldest < 10'(LORA_WINDOW_CHUNKS)) state",
        "else state",
    ),
    "packed rows are all rows": (
        "command_decode",
        "has(flags, LORA_FLAG_SELECTED | LORA_FLAG_PACK)",
        "has(flags, LORA_FLAG_SELECTED)",
    ),
    "more row groups than there are": (
        "sequencer",
        "segments[s] < run[ROUTER].groups ? segments[s] : run[ROUTER].groups",
        "segments[s]",
    ),
    "the first value in time": ("run_records", "|| 32'(index) < nonfinite_index", ""),
    "the Router is named first": (
        "stalled_unit",
        "running[u] && u != LORA_UNIT_ROUTER",
        "running[u] && !running[LORA_UNIT_ROUTER]",
    ),
}


@pytest.mark.parametrize(
    "name", [*MISTAKES, *(pytest.param(name, marks=pytest.mark.long) for name in MORE_MISTAKES)]
)
def test_mistake_is_noticed(bench: Path, name: str, tmp_path: Path) -> None:
    module, right, wrong = (MISTAKES | MORE_MISTAKES)[name]
    sources = mistaken(tmp_path, f"control/{module}.sv", right, wrong)
    mistake = build("sequencer", sources=sources, folder=tmp_path / "build", OPT="-O0")
    done = run(mistake, "--lists", 400, "--seed", 1)
    assert done.returncode == 1 and done.stderr.startswith("list ")


@pytest.mark.slow
def test_an_answer_of_the_command_before_is_noticed(tmp_path: Path) -> None:
    """It would start the next one too early, which is there at once where the MPU is told three."""
    right, wrong = "holds && of_next[1])", "holds)"
    sources = mistaken(tmp_path, "control/unit_slot.sv", right, wrong)
    bench = build("sequencer", sources=sources, folder=tmp_path / "build", OPT="-O0", AHEAD=AHEAD)
    done = run(bench, "--lists", 400, "--seed", 1)
    assert done.returncode == 1 and "too early" in done.stderr
