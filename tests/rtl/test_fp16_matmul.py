"""The simulated FP16 array against the NumPy model, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import rtl
from tests.rtl_rig import FP16, FP32, Matmul, build, same, units_runner
from tests.unit.kernel_rig import Rig
from tests.unit.test_kernels_matrix import run_matrix

pytestmark = pytest.mark.rtl

EDGES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0401, 0x3BFF, 0x3C00,
     0xBC00, 0x3C01, 0x4000, 0x5BFF, 0x77FF, 0x7800, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00,
     0xFE01, 0xFFFF],
    np.uint16,
).view(np.float16)  # fmt: skip


def normal(seed: int, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * np.exp2(generator.integers(-6, 3, shape))).astype(
        np.float16
    )


def any_bits(seed: int, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 1 << 16, shape, np.uint16).view(np.float16)


def finite_bits(seed: int, *shape: int) -> np.ndarray:
    """All exponents but that of infinity, subnormals included."""
    bits = any_bits(seed, *shape).view(np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] ^= 0x4000
    return bits.view(np.float16)


def cancelling(seed: int, *shape: int) -> np.ndarray:
    """Neighbors along K that wholly or nearly cancel where x has the same value for both."""
    bits = finite_bits(seed, *shape).view(np.uint16)
    half = bits[1::2]
    noise = np.random.default_rng(seed + 1).integers(0, 3, half.shape, np.uint16) >> 1
    bits[1::2] = bits[: 2 * len(half) : 2] ^ np.uint16(0x8000) ^ noise
    return bits.view(np.float16)


@pytest.mark.parametrize("y_type", [FP16, FP32])
@pytest.mark.parametrize(
    ("k", "n", "rows"),
    [(1, 1, 1), (31, 33, 2), (32, 32, 1), (33, 31, 3), (70, 7, 2), (255, 64, 1), (256, 96, 1),
     (257, 40, 2), (300, 45, 3), (1601, 37, 1)],
)  # fmt: skip
def test_shapes(units: Any, k: int, n: int, rows: int, y_type: int) -> None:
    x, w, bias = normal(1, rows, k), normal(2, k, n), normal(3, n)
    assert same(Matmul(x, w, bias, y_type), units)
    assert same(Matmul(x, w, None, y_type), units)


def test_a_million_products(units: Any) -> None:
    matmul = Matmul(normal(1, 1, 1024), normal(2, 1024, 1056))
    assert same(matmul, units)
    before = rtl.simulated_work()
    matmul.run(units_runner(units))
    after = rtl.simulated_work()
    assert after.products - before.products == 1024 * 1056
    # the schedule's own figure: 256 cycles a round of 8 units, 32 more a tile
    cycles = (after.cycles - before.cycles) / 33
    assert 1056 <= cycles < 1.03 * 1056


@pytest.mark.parametrize("k", [1, 2, 3, 40])
@pytest.mark.parametrize("y_type", [FP16, FP32])
def test_any_bits(units: Any, k: int, y_type: int) -> None:
    """Subnormals, infinities, NaN and -0 in x, w and bias."""
    x, w, bias = any_bits(k, 8, k), any_bits(k + 1, k, 2048), any_bits(k + 2, 2048)
    assert same(Matmul(x, w, bias, y_type), units)


@pytest.mark.parametrize("y_type", [FP16, FP32])
def test_all_exponents(units: Any, y_type: int) -> None:
    x, w = finite_bits(1, 2, 515), finite_bits(2, 515, 544)
    assert same(Matmul(x, w, finite_bits(3, 544), y_type), units)
    x = np.repeat(finite_bits(4, 2, 260), 2, axis=1)
    assert same(Matmul(x, cancelling(5, 520, 544), None, y_type), units)


@pytest.mark.parametrize("y_type", [FP16, FP32])
def test_edges(units: Any, y_type: int) -> None:
    """Each edge value times each, plus each."""
    w = np.tile(EDGES, len(EDGES))[None, :]
    bias = np.repeat(EDGES, len(EDGES))
    assert same(Matmul(EDGES[:, None], w, bias, y_type), units)
    assert same(Matmul(EDGES[:, None], w, None, y_type), units)


def test_ties_of_fp16(units: Any) -> None:
    """Sums halfway between two FP16 values, and a little beside, in every binade."""
    values = np.exp2(np.arange(-14, 16)).astype(np.float16)
    odd = (values.astype(np.float64) * (1 + 2.0**-10)).astype(np.float16)
    halves = (values.astype(np.float64) * 2.0**-11).astype(np.float16)
    w = np.stack([np.concatenate([values, odd]), np.concatenate([halves, halves])])
    exact = w.astype(np.float64).sum(axis=0)
    assert (exact.astype(np.float16) != exact).sum() >= 50
    ones = np.ones((1, 2), np.float16)
    for sign in (1, -1):
        signed = (sign * w).astype(np.float16)
        assert same(Matmul(ones, signed, None, FP16), units)
        for tiny in (2.0**-24, -(2.0**-24)):
            bias = np.full(w.shape[1], tiny, np.float16)
            assert same(Matmul(ones, signed, bias, FP16), units)


@pytest.mark.parametrize("place", [(1, 0, 0), (1, 7, 9), (3, 1, 5), (4, 2, 64), (255, 3, 1)])
def test_placement_of_blocks(units: Any, place: tuple[int, int, int]) -> None:
    matmul = Matmul(normal(1, 1, 400), normal(2, 400, 100), None, FP32, place, bank_bytes=1 << 23)
    assert same(matmul, units)


def test_selected_rows(units: Any) -> None:
    x, w = normal(6, 3, 64), normal(7, 64, 40)
    x[1, 3], x[2, 0] = np.inf, np.nan
    assert same(Matmul(x, w, None, FP16, selected=(2, 5, 8)), units)


@pytest.fixture
def memory(units: Any) -> Iterator[Callable[[int, int], None]]:
    """Sets the memory's behavior; back to the fast one afterwards."""
    yield units.lora_rtl_memory
    units.lora_rtl_memory(1, 0)


@pytest.mark.parametrize(("latency", "busy"), [(25, 0), (1, 128), (200, 30)])
def test_slow_memory(
    units: Any, memory: Callable[[int, int], None], latency: int, busy: int
) -> None:
    memory(latency, busy)
    x, w, bias = normal(1, 2, 300), normal(2, 300, 100), normal(3, 100)
    assert same(Matmul(x, w, bias, FP16), units)
    assert same(Matmul(x[:, :20].copy(), w[:20].copy(), bias, FP32), units)


def test_initial_bits_do_not_matter(tmp_path: Path) -> None:
    """Registers and memories begin with other random bits in each copy of the library."""
    for seed in (2, 3, 4):
        copy = tmp_path / f"{seed}.so"
        shutil.copy2(Path(rtl.__file__).parent / rtl.LIBRARY, copy)
        other = rtl.load(copy)
        rtl.kernel_table(other, seed)  # the first call makes the units
        x, w, bias = normal(1, 2, 70), normal(2, 70, 50), normal(3, 50)
        assert same(Matmul(x, w, bias, FP16), other)
        assert same(Matmul(any_bits(1, 1, 3), any_bits(2, 3, 320), any_bits(3, 320)), other)


@pytest.mark.parametrize(("lanes", "rows"), [(8, 3), (16, 1)])
def test_other_sizes(tmp_path: Path, lanes: int, rows: int) -> None:
    other = build(tmp_path, lanes=lanes, rows=rows)
    x, w, bias = normal(1, 7, 300), normal(2, 300, 75), normal(3, 75)
    assert same(Matmul(x, w, bias, FP16), other)
    assert same(Matmul(x, w, bias, FP32), other)
    x, w = any_bits(4, 8, 2), any_bits(5, 2, 520)
    assert same(Matmul(x, w, any_bits(6, 520), FP16), other)
    assert rtl.simulated_work(other).simulated == 3


def test_rows_beside_lines_are_native(units: Any) -> None:
    before = rtl.simulated_work()
    rig = Rig(runner=units_runner(units))
    rig.rows(2)
    run_matrix(rig, normal(1, 2, 70), normal(2, 70, 7))
    after = rtl.simulated_work()
    assert (after.matrix - before.matrix, after.simulated - before.simulated) == (1, 0)
