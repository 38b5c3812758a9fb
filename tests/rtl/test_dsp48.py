"""Sums of products in a chain of DSP48E2s, over a model of the primitive that is written from
UG579, and the INT8 array that is built with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl import bench_rig
from tests.rtl.test_int8_matmul import Matmul, same, simulated
from tests.rtl_rig import FP16, FP32, ROOT, build, mistaken

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

MODEL = ROOT / "tests" / "rtl" / "dsp48" / "DSP48E2.sv"
RANDOM = 1_000_000


def test_a_chain_adds_products() -> None:
    """Extreme values in all taps and a million random lines, of 8 and of 4 bits, with gaps."""
    program = bench_rig.build("dsp48")
    found = bench_rig.counted(bench_rig.run(program, 1, RANDOM))
    assert found["lines"] >= RANDOM


MISTAKES = {
    "the cascade is left out": ("dot_dsp48", "9'b00_001_01_01", "9'b00_000_01_01"),
    "a weight without its highest bit": ("dot_dsp48", ".D(d[i])", ".D(27'(d[i][25:0]))"),
    "the sum does not wait": ("dot_dsp48", ".CEP(enable_2)", ".CEP(1'b1)"),
    "the sum is not cleared": ("dot_dsp48", "i == 3 ? clear : 1'b0", "1'b0"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, f"mpu/{file}.sv", right, wrong)
    folder = tmp_path / "build"
    program = bench_rig.build("dsp48", sources=sources, folder=folder)
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
