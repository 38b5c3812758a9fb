"""A board's memory between units and AXI4 ports: the on-chip buffer, reads as bursts, writes with
their numbers, the control's accesses, errors, resets; memory that answers in any order. Channels
and attention units read by two of the ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_lab.timing.source_target import ONCHIP as ONCHIP_CYCLES
from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import mistaken

pytestmark = pytest.mark.rtl

# Of each kind, at least so many for 100,000 lines.
LEAST = {
    "writes": 50_000, "onchip": 10_000, "unmapped": 5000, "failed": 5000, "failed_writes": 1500,
    "words": 3000, "chunks": 8000, "resets": 2, "full": 15, "ends_page": 800,
    "after_control": 200, "of_channels": 50_000, "failed_of_channels": 1000,
    "of_pages": 50_000, "failed_of_pages": 1000, "held_pages": 1000, "unmapped_pages": 100,
}  # fmt: skip


@pytest.mark.slow
def test_lines_cross_without_a_choice_of_ports(tmp_path: Path) -> None:
    """A register of read_cross a port: readers choose between two of them."""
    found = counted(run(build("axi", "memory", folder=tmp_path, PER=1), 5, 100_000))
    assert all(found[kind] >= LEAST[kind] for kind in LEAST if "pages" in kind)


@pytest.mark.slow
def test_lines_are_those_of_memory() -> None:
    found = counted(run(build("axi", "memory"), 4, 100_000))
    short = {kind: found[kind] for kind, least in LEAST.items() if found[kind] < least}
    assert not short and found["burst_lines"] > 2 * found["bursts"]
    # lines that follow each other: one a cycle, in bursts; no line is held for longer than a few
    assert found["stream"] < 1024 + 20 and found["stream_bursts"] == 1024 / 8
    assert found["longest"] <= 8 + 4
    assert found["onchip_cycles"] == ONCHIP_CYCLES


@pytest.mark.long
def test_many_lines() -> None:
    program = build("axi", "memory")
    for seed in range(100, 120):
        counted(run(program, seed, 200_000))


BURSTS, PORTS, SHARE, TURNS, CROSS, ONCHIP, MEMORY = (
    "axi/read_bursts.sv", "axi/line_ports.sv", "axi/axi_share.sv", "axi/read_share.sv",
    "axi/read_cross.sv",    "card/onchip_memory.sv", "card/board_memory.sv",
)  # fmt: skip
MISTAKES = {
    "a burst crosses 4 KiB": (BURSTS, " || next[5:0] == 6'd0;", ";"),
    "a burst of 17 lines": (BURSTS, "count == count_t'(MOST)", "count == count_t'(MOST + 1)"),
    "a line that does not follow is joined": (BURSTS, "in_line == next && !full", "!full"),
    "a burst that waits for ever": (BURSTS, "assign waited = ", "assign waited = 1'b0 && "),
    "a burst is held for longer": (BURSTS, "age == age_t'(HOLD) || ", ""),
    "a burst less than it has": (BURSTS, "8'(count) - 8'd1", "8'(count)"),
    "an address that changes": (BURSTS, "grows && (!arvalid || arready) &&", "grows &&"),
    "no room for a tag": (BURSTS, "assign has_room = ", "assign has_room = 1'b1 || "),
    "an error of a read is lost": (
        PORTS, "onchip_line_error : rresp[line_port][1]", "onchip_line_error : 1'b0",
    ),
    "an error of a write is lost": (
        PORTS, "onchip_written_error : bresp[answer_port][1]", "onchip_written_error : 1'b0",
    ),
    "a write of another number": (PORTS, ": bid[answer_port];", ": out_id;"),
    "an answer under the on-chip buffer's": (PORTS, ".hold(onchip_line_valid)", ".hold(1'b0)"),
    "a line of no bank is the on-chip buffer's": (
        PORTS, "onchip_read_failed = !read_here", "onchip_read_failed = 1'b0",
    ),
    "data without its address": (
        PORTS, "(!address_waits || write_at == '0 || (write_at & awready) != '0) &&", "1'b1 &&",
    ),
    "a unit gets the control's lines": (
        SHARE, "b_rvalid = rvalid && rid[ID_BITS]", "b_rvalid = rvalid",
    ),
    "a write of the control is dropped": (
        SHARE, "b_awvalid && b_wvalid && write_free && !a_writes",
        "b_awvalid && b_wvalid && write_free",
    ),
    "a unit's read overtakes the control's write": (
        MEMORY, "assign settled = owed == '0;", "assign settled = 1'b1;",
    ),
    "a unit gets a channel's lines": (TURNS, "a_rvalid = rvalid && of_a", "a_rvalid = rvalid"),
    "a channel's read is lost": (TURNS, "b_ready = free && whose == 2'd1", "b_ready = free"),
    "an error of a channel's line is lost": (
        MEMORY, "channel_line_error[p] = m_axi_rresp[p][1]", "channel_line_error[p] = 1'b0",
    ),
    "a channel gets a page's lines": (
        TURNS, "b_line_valid = rvalid && !of_a && !of_c", "b_line_valid = rvalid && !of_a",
    ),
    "a page's line under one that waits": (
        CROSS, ".hold(line_valid[r] && !line_ready[r])", ".hold(1'b0)",
    ),
    "a page's line of another reader": (
        CROSS, "&& group_owner[g] == LOG'(r)", "&& group_owner[g][0] == 1'(r)",
    ),
    "a page's line under one that crosses": (CROSS, ".hold(waiting[g] && !taken)", ".hold(1'b0)"),
    "a page's line with the tag of another port": (
        CROSS, "{owner[g+k*GROUPS], tag[g+k*GROUPS],", "{owner[g+k*GROUPS], tag[g],",
    ),
    "a page of no bank is there": (CROSS, "lost_taken || group_error[group]", "group_error[group]"),
    "all bytes of a line are written": (ONCHIP, "writes && write_bytes[i]", "writes"),
    "a line too early": (ONCHIP, "assign line_data = found[STAGES]", "assign line_data = found[0]"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, file, right, wrong)
    done = run(build("axi", "memory", sources=sources, folder=tmp_path / "build"), 4, 100_000)
    assert done.returncode != 0
