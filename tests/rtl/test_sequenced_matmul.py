"""A simulated array behind the sequencer: announced, started and aborted by it, with the bytes of
the NumPy model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build
from tests.rtl.sequenced_rig import Chain
from tests.rtl_rig import mistaken

pytestmark = pytest.mark.rtl

SIZES = [(70, 40), (300, 33), (128, 64), (31, 7), (520, 40)]


@pytest.fixture(scope="module")
def bench() -> Path:
    return build("sequenced")


@pytest.mark.parametrize("busy", [0, 120])
def test_bytes_of_the_model(bench: Path, tmp_path: Path, busy: int) -> None:
    """Weights come before x is there; runs that were ended leave nothing behind."""
    told = ended = 0
    for seed in range(6):
        same, counts = Chain(SIZES).run(bench, tmp_path / f"{seed}", seed, busy, 5)
        assert same, f"seed {seed}"
        assert counts["aborts"] >= 3 and counts["read_early"] >= 50
        told += counts["aborts_told"]
        ended += counts["aborts_with_reads"]
    assert told >= 3 and ended >= 3


MISTAKES = {
    "an abort leaves what was told": (
        "{told_here, starts} <= 2'b00;\n      state <= EMPTY;",
        "{told_here, starts} <= 2'b00;\n      if (rst) state <= EMPTY;"),
    "a start is forgotten": (
        "if (unit_start) starts <= 1'b1;", "if (unit_start) starts <= idle[FP16_ARRAY];"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, "mpu/matmul_slot.sv", right, wrong)
    bench = build("sequenced", sources=sources, folder=tmp_path / "build", OPT="-O0")
    with pytest.raises(AssertionError):
        for seed in range(3):
            assert Chain(SIZES).run(bench, tmp_path / f"{seed}", seed, 0, 5)[0]
