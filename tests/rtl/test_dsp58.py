"""Multipliers of Versal devices: sums of products of a chain of DSP58s, over a model of the
primitive that is written from AM004, and the INT8 array that is built with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl import bench_rig
from tests.rtl.test_int8_matmul import Matmul, same, simulated
from tests.rtl_rig import FP16, FP32, ROOT, build, mistaken

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
    units = build(tmp_path, unit="int8", rows=2, depth=depth, primitives=MODEL)
    for matmul in (
        Matmul(300, 75, 3, row_scales=True),
        Matmul(384, 320, 2, bias=False, extreme=0.3, y_type=FP32),
        Matmul(8191, 32, y_type=FP32, positive=True),
    ):
        assert simulated(units, matmul)
    if depth == 4:
        return
    for group in (32, 64, 128):
        for y_type in (FP16, FP32):
            assert simulated(units, Matmul(1664, 45, 3, group, y_type=y_type, seed=group))
        assert simulated(units, Matmul(384, 96, 2, group, extreme=0.3, y_type=FP32))
    # one kind of weights behind the other: operands of the last one are still there
    for group in (0, 128, 0, 32):
        assert same(units, Matmul(256, 64, 1, group, y_type=FP32, seed=9))
