"""Streams of frames between 64 and 32 bytes, and between the control's clock and a link's: random
frames, gaps and waits on both sides, resets of either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import mistaken

pytestmark = pytest.mark.rtl

FRAMES = 20_000


@pytest.mark.slow
def test_frames_come_through() -> None:
    program = build("axi")
    for seed in (1, 2):
        found = counted(run(program, seed, FRAMES))
        assert found["frames"] == FRAMES and found["waits"] == 0
        assert found["wholes"] < found["halves"] < 2 * found["wholes"]


@pytest.mark.slow
def test_frames_cross_clocks() -> None:
    """Without resets all come; behind one none is lost, and none is ever made of two."""
    program = build("axi", "links")
    found = [counted(run(program, seed, 2000)) for seed in range(20)]
    total = {kind: sum(one[kind] for one in found) for kind in found[0]}
    assert total["control_resets"] > 300 and total["link_resets"] > 300
    assert total["cut"] > 200 and total["whole"] > 25_000


NARROW, WIDEN = "stream_narrow.sv", "stream_widen.sv"
MISTAKES = {
    "a last word of one half has two": (NARROW, "high || (last && keep[1] == '0)", "high"),
    "both halves are the last": (NARROW, "last && ends;", "last;"),
    "a gap behind each word": (NARROW, "!full || (out_ready && ends)", "!full"),
    "the halves change places": (WIDEN, "{in_data, low}", "{low, in_data}"),
    "a frame ends in a whole word alone": (
        WIDEN, "out_valid <= has_low || in_last", "out_valid <= has_low",
    ),
    "a low half without keep": (WIDEN, "BYTES'('1)}", "BYTES'(0)}"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, f"axi/{file}", right, wrong)
    done = run(build("axi", sources=sources, folder=tmp_path / "build"), 1, 2000)
    assert done.returncode != 0 or json.loads(done.stdout)["waits"] > 0


CROSSING_MISTAKES = {
    "the rest of a frame goes on": ("stream_drop.sv", "drops <= stop && begun", "drops <= 1'b0"),
    "a frame that is cut has no end": ("stream_end.sv", "ends <= stop && begun", "ends <= 1'b0"),
    "an end is taken as a word": ("stream_end.sv", "out_ready && !ends;", "out_ready;"),
    "a link that is down seems up": ("link_streams.sv", "up <= channel_up && ", "up <= "),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CROSSING_MISTAKES)
def test_a_mistake_in_a_crossing_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = CROSSING_MISTAKES[name]
    sources = mistaken(tmp_path, f"axi/{file}", right, wrong)
    program = build("axi", "links", sources=sources, folder=tmp_path / "build")
    assert any(run(program, seed, 2000).returncode for seed in range(10))
