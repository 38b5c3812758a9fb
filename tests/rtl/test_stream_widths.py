"""Streams of frames between 64 and 32 bytes: random frames, gaps and waits on both sides."""

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
