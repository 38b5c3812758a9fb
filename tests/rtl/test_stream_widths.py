"""Streams of frames between 64 and 32 bytes: random frames, gaps and waits on both sides."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rtl_rig import ROOT

pytestmark = pytest.mark.rtl

SOURCES = ROOT / "overlays" / "rtl"
FRAMES = 20_000


def built(folder: Path, sources: Path = SOURCES) -> Path:
    target = folder / "build" / "widths"
    subprocess.run(
        ["make", "-C", ROOT / "tests" / "rtl" / "axi", f"BUILD={target.parent}",
         f"RTL={sources}", target],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return target


def ran(program: Path, seed: int, frames: int = FRAMES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, str(seed), str(frames)], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_frames_come_through(tmp_path: Path) -> None:
    program = built(tmp_path)
    for seed in (1, 2):
        done = ran(program, seed)
        assert done.returncode == 0, done.stdout
        found = json.loads(done.stdout)
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
    sources = tmp_path / "rtl"
    shutil.copytree(SOURCES / "axi", sources / "axi")
    text = (sources / "axi" / file).read_text()
    assert text.count(right) == 1
    (sources / "axi" / file).write_text(text.replace(right, wrong))
    done = ran(built(tmp_path, sources), 1, 2000)
    assert done.returncode != 0 or json.loads(done.stdout)["waits"] > 0
