# SPDX-License-Identifier: Apache-2.0
"""The matmul on CHANNELS arrays, one behind each bank: bytes, statuses and counts of the native
kernels, in groups of commands that are announced ahead, ended by aborts and resets at any cycle
and by lines that fail; cycles of one matmul."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.rtl.bench_rig import build, built, counted, run
from tests.rtl.channel_rig import (
    BAD_K,
    MAX_K,
    ChannelRig,
    Channels,
    random_groups,
)
from tests.rtl_rig import FP32, SOURCES

pytestmark = pytest.mark.rtl

RATE = 0.75  # lines a cycle and port, of most timed runs
SHAPES = [
    Channels(1, 1, group=0, y_type=FP32),
    Channels(3, 33, rows=2, group=0),
    Channels(131, 96, rows=3, group=0),
    Channels(700, 45, rows=2, group=0, row_scales=True),
    Channels(32, 40, group=32),
    Channels(96, 31, group=32, first=1),
    Channels(1664, 333, rows=2, group=128, y_type=FP32),
    Channels(1152, 7, rows=3, group=128, extreme=0.3),
    Channels(1664, 97, group=64, row_scales=True, bias=False),
    Channels(1152, 290, rows=2, group=32, first=3),
    Channels(960, 33, rows=3, group=64),  # x of three rows comes later than a block is over
]


def first_then_slow(cases: Iterable[str]) -> list[Any]:
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.slow) for case in others)]


def bench(channels: int, **variables: object) -> Path:
    """The bench of so many channels."""
    names = "-".join(f"{key}{value}" for key, value in {"": channels, **variables}.items())
    return build("channel", folder=built("channel") / names.lower(), CHANNELS=channels, **variables)


@pytest.fixture(scope="module")
def two() -> Path:
    """With buffers that are full at once."""
    return bench(2, BUFFER=256)


@pytest.fixture(scope="module")
def four() -> Path:
    return bench(4)


def check(
    program: Path, channels: int, path: Path, seed: int, groups: int, most: int = 700
) -> dict[str, Any]:
    rig = ChannelRig(channels, path)
    random_groups(rig, seed, groups, most)
    rig.close()
    found = counted(run(program, path, seed))
    path.unlink()
    assert found["groups"] == groups
    return found


def timed(program: Path, path: Path, rate: float = RATE) -> list[int]:
    """Cycles of each group."""
    found: list[int] = counted(run(program, path, 1, "timed", int(4 * rate)))["took"]
    path.unlink()
    return found


def took(
    program: Path, channels: int, path: Path, *matmuls: Channels, rate: float = RATE
) -> list[tuple[int, int]]:
    """Cycles of each matmul, alone, and lines of the busiest bank."""
    rig = ChannelRig(channels, path, bank_bytes=1 << 22)
    for one in matmuls:
        rig.write([one])
    rig.close()
    return list(zip(timed(program, path, rate), map(rig.lines, matmuls), strict=True))


def test_shapes(two: Path, tmp_path: Path) -> None:
    rig = ChannelRig(2, tmp_path / "groups")
    for one in SHAPES:
        rig.write([one])
    rig.close()
    assert counted(run(two, tmp_path / "groups", 1))["status_0"] >= len(SHAPES)


def test_some_groups(two: Path, four: Path, tmp_path: Path) -> None:
    for channels, program in ((2, two), (4, four)):
        found = check(program, channels, tmp_path / "groups", 1, 25)
        assert found["aborts"] + found["resets"] >= 3
        assert found["failed"] >= 1 and found["refused"] >= 1
        assert found["told_early"] >= 10 and found["nonfinite"] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("channels", [2, 4])
def test_many_groups(two: Path, four: Path, tmp_path: Path, channels: int) -> None:
    found = check({2: two, 4: four}[channels], channels, tmp_path / "groups", 2, 250, most=2200)
    least = {
        "aborts": 40,
        "resets": 15,
        "failed": 15,
        "refused": 15,
        "ended_running": 80,
        "ended_under_way": 40,
        "told_early": 300,
        "nonfinite": 100,
        "status_2": 5,
        "status_3": 5,
        "status_4": 5,
        "status_5": 2,
        "status_6": 2,
    }
    assert not {name: found.get(name, 0) for name, n in least.items() if found.get(name, 0) < n}


@pytest.mark.parametrize(
    "channels",
    [pytest.param(8, marks=pytest.mark.slow), pytest.param(32, marks=pytest.mark.long)],
)
def test_groups_on_more_channels(tmp_path: Path, channels: int) -> None:
    assert check(bench(channels), channels, tmp_path / "groups", 3, 12)["status_0"] >= 12


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_groups_with_other_rows(tmp_path: Path, rows: int) -> None:
    """And finishers that serve more channels, queues of one and four commands."""
    queue, finishers = (1, 2) if rows == 1 else (4, 1)
    program = bench(
        2, ROWS=rows, FINISHERS=finishers, QUEUE=queue, BUFFER=256, BLOCKS="", OPT="-O0"
    )
    assert check(program, 2, tmp_path / "groups", 4, 40)["status_0"] >= 40


@pytest.mark.slow
def test_a_finisher_takes_two_tiles_of_one_row(tmp_path: Path) -> None:
    """Of four channels' last tiles: two turns of at least 32 cycles less."""
    shared = bench(4, FINISHERS=1, BUFFER=256)
    assert check(shared, 4, tmp_path / "groups", 5, 60)["status_0"] >= 60
    (one, _), (two, _) = took(
        shared, 4, tmp_path / "one", Channels(4096, 128), Channels(4096, 128, rows=2), rate=1
    )
    assert two - one >= 2 * 32


@pytest.mark.slow
def test_the_longest_rows(four: Path, tmp_path: Path) -> None:
    rig = ChannelRig(4, tmp_path / "groups", bank_bytes=1 << 22)
    rig.write(
        [Channels(MAX_K, 160, group=128), Channels(MAX_K, 128, rows=2, group=0, row_scales=True)]
    )
    rig.write([Channels(128, 32, wrong={"k": MAX_K + 1, "merge": 255}, status=BAD_K)])
    rig.close()
    found = counted(run(four, tmp_path / "groups", 1))
    assert found["status_0"] >= 2 and found[f"status_{BAD_K}"] >= 1


# --- cycles ---------------------------------------------------------------------------------------


def within(cycles: int, lines: int) -> bool:
    """1.01 times what the port takes, and 400 cycles for latencies, the first block, the last
    tile."""
    return lines / RATE <= cycles <= 1.01 * lines / RATE + 400


@pytest.mark.parametrize("k", [4096, 11008])
def test_a_matmul_takes_what_its_port_takes(four: Path, tmp_path: Path, k: int) -> None:
    """Of W4A8 in groups of 128; segments of 11008 end within groups."""
    for cycles, lines in took(
        four, 4, tmp_path / "groups", Channels(k, 1024), Channels(k, 256, rows=2)
    ):
        assert within(cycles, lines), (k, cycles, lines)


# N, group by K: cycles of a tile whose lines are in the buffer: 34 lines a block of 128, or 32
# cycles a part and an empty segment. Steps of the tree take none.
TILES = {
    (4096, 1024, 128): 1088,
    (11008, 512, 128): 92 * 32,
    (1024, 1024, 128): 272,
    (512, 1024, 128): 256,  # a part a segment
    (128, 1024, 128): 256,  # and every other one empty
    (96, 1024, 32): 256,
    (1024, 1024, 32): 1024,
}


@pytest.mark.parametrize("shape", TILES)
def test_steps_of_the_tree_go_beside_first_parts(
    four: Path, tmp_path: Path, shape: tuple[int, int, int]
) -> None:
    """Ports give a line a cycle. Behind the last tile three steps are left."""
    k, n, group = shape
    ((cycles, _),) = took(four, 4, tmp_path / "groups", Channels(k, n, group=group), rate=1)
    tiles = n // 32 // 4
    assert tiles * TILES[shape] < cycles < tiles * TILES[shape] + 3 * 32 + 350


def test_short_columns_take_what_their_port_takes(four: Path, tmp_path: Path) -> None:
    """A part a segment: seven steps of the tree beside eight parts."""
    ((cycles, lines),) = took(four, 4, tmp_path / "groups", Channels(1024, 2048))
    assert within(cycles, lines)


@pytest.mark.long
@pytest.mark.parametrize("k", [4096, 11008])
def test_32_channels_take_as_long(tmp_path: Path, k: int) -> None:
    for cycles, lines in took(
        bench(32), 32, tmp_path / "groups", Channels(k, 4096), Channels(k, 4096, group=0, rows=2)
    ):
        assert within(cycles, lines), (k, cycles, lines)


def test_w8a8_and_a_second_matmul(four: Path, tmp_path: Path) -> None:
    """The second one's lines come while the first one runs."""
    one = Channels(1024, 1024, group=0)
    ((cycles, lines),) = took(four, 4, tmp_path / "groups", one)
    assert within(cycles, lines)
    rig = ChannelRig(4, tmp_path / "two", bank_bytes=1 << 22)
    rig.write([Channels(4096, 1024), Channels(4096, 1024, seed=2)])
    rig.close()
    (both,) = timed(four, tmp_path / "two")
    assert within(both, 2 * rig.lines(Channels(4096, 1024)))


# --- mistakes -------------------------------------------------------------------------------------

WORK, FETCH, SCHEDULE = "channel_work.sv", "channel_fetch.sv", "channel_schedule.sv"
PASSES, ROW = "channel_passes.sv", "channel_row.sv"
CHANNEL, FINISH = "channel.sv", "channel_finish.sv"
QUEUE, PARAMS, MATMUL, WRITES = (
    "channel_queue.sv",
    "channel_params.sv",
    "channel_matmul.sv",
    "channel_writes.sv",
)
SEEDS = (1, 2, 3)
# What is wrong: file, a text that it has once, in it an expression, what would stand there.
MISTAKES = {
    "the last tile is not cut": (FINISH, "{}", "columns > 25'd32 ? 6'd32 : columns[5:0]", "6'd32"),
    "first is not rotated": (
        WORK,
        "first_1 <= {};",
        "index[LOG-1:0] - descriptor.begin_bank[LOG-1:0]",
        "index[LOG-1:0]",
    ),
    "banks before that of tile 0 begin with the others": (
        WORK,
        "{}",
        "before_1 ? {18'd0, descriptor_1.tile_lines} : 32'd0",
        "32'd0",
    ),
    "the neighbour group's scales": (
        SCHEDULE,
        "{}",
        "{5'b01000, group}",
        "{5'b01000, group ^ 2'd1}",
    ),
    "a full buffer takes lines": (FETCH, "{}", "held != count_t'(LINES)", "1'b1"),
    "a segment ends a unit early": (
        SCHEDULE,
        "{}",
        "unit + 11'd1 == border[13:3]",
        "unit + 11'd2 == border[13:3]",
    ),
    "groups are not cut at segments": (SCHEDULE, "{}", "group_end || segment_end", "group_end"),
    "the queue overwrites": (QUEUE, "{}", "count == (PLACE + 1)'(QUEUE)", "1'b0"),
    "an abort leaves lines": (FETCH, "level <= {};", "'0", "level"),
    "rows of x are swapped": (
        CHANNEL,
        "{}",
        "feed_tag.row == row[1:0]",
        "feed_tag.row == 2'(ROWS - 1 - row)",
    ),
    "rows of y are swapped": (FINISH, "put.row |= {};", "r[1:0]", "2'(ROWS - 1 - r)"),
    "more rows read other weights": (
        FETCH,
        "{}",
        "pass_end ? work.line : next_line + 32'd1",
        "next_line + 32'd1",
    ),
    "the other side's totals": (CHANNEL, "read_side <= {};", "total_side", "!total_side"),
    "a failed line is used": (CHANNEL, "fault_t'({})", "stream[513:512]", "2'd0"),
    "failed scales are used": (
        FINISH,
        "params_bad <= {};",
        "params_bad | failed[{picked, use_side[picked]}]"
        " | failed[{picked_second, use_side[picked_second]}]",
        "params_bad",
    ),
    "failed x is used": (
        MATMUL,
        "x_fault = {};",
        "x_comes ? down.feed.fault : '0",
        "'0",
    ),
    "a line of no arena is one that failed": (MATMUL, "{}", "found.refused", "1'b0"),
    "scales of the tile before": (PARAMS, "{}", "scale_line + 32'd2", "scale_line"),
    "scales of the other side": (
        FINISH,
        "scale_lines[{t == 0 ? {} : {second, second_side}, column_1[4]}]",
        "{link, side}",
        "{link, !side}",
    ),
    "bias of the tile beside": (
        FINISH,
        "bias_lines[t==0?{link, side} : {}]",
        "{second, second_side}",
        "{link, side}",
    ),
    "a tile beside that is none": (FINISH, "counts |= {};", "pair_out", "1'b1"),
    "a pass begins before any x": (MATMUL, "x_rest) && {};", "head_waiting == 9'd0", "1'b1"),
    "a block begins before its x": (CHANNEL, "x_whole <= {};", "whole || (x_whole && !go)", "1'b1"),
    "a pass ends before its last tile": (
        MATMUL,
        "{}",
        "settling == 4'd0 && all_over && all_quiet",
        "settling == 4'd0 && all_quiet",
    ),
    "the tree joins in another order": (ROW, "left[{{}, at.slot}]", "at.segment[1]", "1'b0"),
    "totals are made two segments early": (PASSES, "&& {};", "segment == 3'd3", "segment == 3'd1"),
    "the first tile makes totals of none": (PASSES, "next.is_total = {}", "unjoined", "1'b1"),
    "a segment begins while its last sum is joined": (
        ROW,
        "even_begins = {} &&",
        "at_1.valid && at_1.first",
        "at.valid && at.first",
    ),
    "long K is taken": (QUEUE, "{}", "command.k > 16'(MAX_K)", "1'b0"),
    "the last row that is not finite": (WRITES, "{}", "{25'd0, line.row} < nonfinite_row", "1'b1"),
}


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bench with all mistakes in it, of which `+mistake=N` makes one, and its groups."""
    folder = tmp_path_factory.mktemp("mistakes")
    sources = Path(shutil.copytree(SOURCES, folder / "rtl"))
    for number, (name, around, right, wrong) in enumerate(MISTAKES.values(), 1):
        text = (sources / "channel" / name).read_text()
        before, behind = around.split("{}")
        assert text.count(before + right + behind) == 1, (name, right)
        chosen = f"(channel_types::mistake == {number} ? ({wrong}) : ({right}))"
        text = text.replace(before + right + behind, before + chosen + behind)
        (sources / "channel" / name).write_text(text)
    types = sources / "channel" / "channel_types.sv"
    types.write_text(
        types.read_text().replace(
            "package channel_types;", "package channel_types;\n  int mistake = 0;"
        )
    )
    program = build(
        "channel",
        sources=sources,
        folder=folder / "build",
        CHANNELS=2,
        ROWS=3,
        FINISHERS=1,
        BUFFER=256,
        BLOCKS="",
        MORE="-DMISTAKES",
    )
    rig = ChannelRig(2, folder / "groups")
    for one in SHAPES:
        rig.write([one])
    random_groups(rig, 5, 40)
    rig.close()
    for seed in SEEDS:
        counted(run(program, folder / "groups", seed))  # nothing is wrong yet
    return program, folder / "groups"


@pytest.mark.parametrize("name", first_then_slow(MISTAKES))
def test_mistake_is_noticed(spoiled: tuple[Path, Path], name: str) -> None:
    program, groups = spoiled
    number = 1 + list(MISTAKES).index(name)
    for seed in SEEDS:
        done = run(program, groups, seed, f"+mistake={number}")
        if done.returncode != 0:
            assert "group " in done.stderr or "Assertion failed" in done.stdout + done.stderr
            return
    pytest.fail(f"{name}: not noticed")
