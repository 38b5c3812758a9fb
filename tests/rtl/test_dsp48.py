"""Sums of products in a chain of DSP48E2s, over a model of the primitive that is written from
UG579, and the INT8 array that is built with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl import bench_rig
from tests.rtl.primitive_array import wrong_matmuls
from tests.rtl_rig import ROOT, mistaken

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
    assert wrong_matmuls(depth, tmp_path, MODEL) == []
