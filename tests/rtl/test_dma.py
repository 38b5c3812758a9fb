"""A simulated DMA unit moves and sums as the emulator's does."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import abi
from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def bench() -> Path:
    """The test program over the source as it is."""
    return build("dma", OPT="-O0")


# Least of what a campaign has in it, of a thousand cases.
LEAST = {
    "store_writes": 300, "commit_writes": 150, "commit_of_layers": 40, "move_writes": 250,
    "sum": 300, "kind_0": 200, "kind_1": 200, "kind_2": 200, "spills": 200, "lines": 100_000,
    "aborts": 300, "aborts_with_reads": 120, "resets": 150, "resets_with_reads": 60,
    "ended_with_read_left": 12, "ended_with_write_left": 12, "errors": 60,
    "ended_store": 100, "ended_commit": 60, "ended_move": 60, "ended_sum": 60,
    f"store_refused_{abi.ERR_SIZE}": 60, f"store_refused_{abi.ERR_ADDRESS}": 60,
    f"store_refused_{abi.ERR_ROW}": 20, f"commit_refused_{abi.ERR_KV}": 50,
    f"commit_refused_{abi.ERR_SIZE}": 20, f"commit_refused_{abi.ERR_ADDRESS}": 30,
    f"move_refused_{abi.ERR_ADDRESS}": 30, f"move_refused_{abi.ERR_ROW}": 2,
    f"sum_refused_{abi.ERR_ADDRESS}": 20, f"other_refused_{abi.ERR_OPCODE}": 8,
}  # fmt: skip


@pytest.mark.parametrize("cases", [100, pytest.param(3000, marks=pytest.mark.long)])
def test_random_commands(bench: Path, cases: int) -> None:
    """Bytes of all banks, statuses and sums; behind aborts, resets and errors of memory."""
    found = counted(run(bench, "--cases", cases, "--seed", cases))
    assert found["cases"] == cases
    least = {kind: number * cases // 1000 for kind, number in LEAST.items() if cases >= 1000}
    least |= {"store_writes": 20, "commit_writes": 10, "move_writes": 15, "sum": 20, "aborts": 20}
    few = {kind: found.get(kind, 0) for kind in least if found.get(kind, 0) < least[kind]}
    assert not few, f"{few} found, at least {least} expected"


def test_lines_of_k_and_v_take_a_cycle(bench: Path) -> None:
    """A row of FP16 K and V of heads of 128 columns, 128 lines of K and four of V a head: the next
    head's blocks are found while lines move. Memory answers after 31 cycles."""
    found = counted(run(bench, "--heads", 32))
    assert found["store_lines"] == found["commit_lines"] == 32 * (128 + 4)
    one = counted(run(bench, "--heads", 1))
    for kind in ("store", "commit"):
        assert one[kind] < 132 + 12 * 31
        assert found[kind] - one[kind] <= 31 * (132 + 2)


# name: (module, right, wrong)
MISTAKES = {
    "the page of another tile": (
        "kv_commit", "38'({tile, 1'b0});\n", "38'({tile, 1'b0}) + 38'd2;\n",
    ),
    "a commit of other layers": (
        "kv_commit", "(32'(command.kv_layer) * 32'(layout.heads)) << 1", "32'd0",
    ),
    "the next lane": ("kv_heads", "row_lane : move.to.lane", "row_lane + 5'd1 : move.to.lane"),
    "no page of other banks": ("page_walk", "layout.spill_bank_count != 8'd0 &&", "1'b0 &&"),
    "an arena's end is not looked at": (
        "../port/range_table", "&& behind <= 57'(offset) + 57'(bytes)", "",
    ),
    "rows over others from the front": ("move_rows", "&& y_at > x_at", "&& 1'b0"),
    "an error of a line is not told": ("dma", "(line_here && line_error) ||", ""),
    "zeros behind the last byte are summed": (
        "range_sum", "if (zeros[0])", "if (zeros[0] && state == BEFORE)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(bench: Path, name: str, tmp_path: Path) -> None:
    module, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, f"dma/{module}.sv", right, wrong)
    mistake = build("dma", sources=sources, folder=tmp_path / "build", OPT="-O0")
    done = run(mistake, "--cases", 300, "--seed", 1)
    assert done.returncode == 1 and done.stderr.startswith("case ")


@pytest.mark.long
def test_a_head_that_waits_for_the_lines_before_is_noticed(tmp_path: Path) -> None:
    sources = mistaken(tmp_path, "dma/kv_heads.sv", "NEXT: begin", "NEXT: if (copy_ready) begin")
    slow = build("dma", sources=sources, folder=tmp_path / "build", OPT="-O0")
    with pytest.raises(AssertionError):
        test_lines_of_k_and_v_take_a_cycle(slow)
