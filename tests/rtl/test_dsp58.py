"""Multipliers of Versal devices: sums of products of a chain of DSP58s, over a model of the
primitive that is written from AM004, and the INT8 array that is built with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl import bench_rig
from tests.rtl.primitive_array import wrong_matmuls
from tests.rtl_rig import ROOT, mistaken

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

MODEL = ROOT / "tests" / "rtl" / "dsp58" / "DSP58.sv"
RANDOM = 1_000_000


@pytest.mark.parametrize("taps", [4, 8])
def test_a_chain_adds_products(taps: int) -> None:
    """Each weight of 9 bits with each x, extreme values in all taps, a million random lines."""
    program = bench_rig.build("dsp58", f"bench_{taps}", TAPS=taps)
    found = bench_rig.counted(bench_rig.run(program, 1, RANDOM))
    assert found["lines"] >= RANDOM + 512 * 256


MISTAKES = {
    "the second stage is a cycle early": ("dot_dsp58", ".BREG(s),", ".BREG(s == 1 ? 0 : s),"),
    "the cascade is left out": ("dot_dsp58", "9'b00_001_01_01", "9'b00_000_01_01"),
    "an element of 8 bits": ("dot_dsp58", "a[9*i+:9] = w[3*s+i]", "a[9*i+:9] = 9'(w[3*s+i][7:0])"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, f"mpu/{file}.sv", right, wrong)
    folder = tmp_path / "build"
    program = bench_rig.build("dsp58", "bench_8", sources=sources, folder=folder)
    assert bench_rig.run(program, 1, 1000).returncode != 0


@pytest.mark.parametrize("depth", [8, pytest.param(4, marks=pytest.mark.long)])
def test_the_array_has_the_same_bytes(depth: int, tmp_path: Path) -> None:
    assert wrong_matmuls(depth, tmp_path, MODEL) == []
