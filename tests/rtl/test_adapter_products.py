"""Adapters' two products on the simulated unit, h = FP16(A*x) and scale*(B*h) on an array's
results, against the NumPy model, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lora_host import rtl
from tests.rtl import test_int8_matmul as int8
from tests.rtl import test_w4a16_matmul as w4a16
from tests.rtl.adapter_rig import (
    Adapter,
    Down,
    Factor,
    Fill,
    Slots,
    plain_up,
    same_down,
    same_up,
)
from tests.rtl.test_fp16_matmul import any_bits, cancelling, finite_bits, memory, normal
from tests.rtl_rig import FP16, FP32, Matmul
from tests.unit.kernel_rig import Result, Rig, Runner

pytestmark = pytest.mark.rtl

__all__ = ["memory"]
SCALES = (0.5, -2.0, 0.1, 0.0, -0.0, 1e-40, 3e38, np.inf, np.nan)


def fp16(k: int, n: int, rows: int = 1, y_type: int = FP32, **fields: Any) -> Matmul:
    return Matmul(normal(1, rows, k), normal(2, k, n), normal(3, n), y_type, **fields)


class W4A16:
    """A matmul of test_w4a16_matmul, in the form of the others."""

    def __init__(self, k: int, n: int, rows: int, group: int, y_type: int = FP32) -> None:
        self._rest = (normal(1, rows, k), n, group, normal, y_type, normal(3, n))

    def run(self, runner: Runner) -> tuple[Rig, Result]:
        return w4a16.run(runner, *self._rest)


def blocks_of_a(seed: int, k: int, ranks: tuple[int, ...], fill: Fill, **fields: Any) -> Adapter:
    """A block-diagonal A: each block has its columns and its ranks."""
    cuts = np.linspace(0, k, len(ranks) + 1).astype(int)
    firsts, rank = np.cumsum((0, *ranks)), -(-sum(ranks) // 8) * 8
    return Adapter(
        down=[
            Factor(
                fill(seed + i, count, cuts[i + 1] - cuts[i]),
                first=int(cuts[i]), rank_first=int(firsts[i]), rank=rank, **fields,
            )
            for i, count in enumerate(ranks)
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("k", "ranks", "rows"),
    [(1, 1, 1), (3, 9, 2), (31, 8, 1), (32, 17, 1), (33, 2, 3), (255, 8, 1), (257, 3, 2),
     (300, 16, 1), (1601, 5, 1)],
)  # fmt: skip
def test_shapes_of_a(units: Any, k: int, ranks: int, rows: int) -> None:
    slots = Slots([Adapter(down=[Factor(normal(1, ranks, k))])], [0])
    assert same_down(units, Down(normal(2, rows, k), slots))


@pytest.mark.parametrize("k", [97, 515, 2050])
def test_blocks_of_a(units: Any, k: int) -> None:
    """Blocks begin and end at any column; columns and ranks outside them are skipped."""
    for ranks in ((5, 3), (1, 8, 2, 5, 9), (16, 16)):
        fields = {"h_first": 7, "h_run": 3, "h_skip": 5}
        slots = Slots([blocks_of_a(k, k, ranks, normal, **fields)], [0])
        assert same_down(units, Down(normal(2, 2, k), slots))


def test_rows_and_slots_of_a(units: Any) -> None:
    """Rows without an adapter keep their h; slots have other shapes and several chunks."""
    adapters = [
        Adapter(down=[Factor(normal(1, 8, 700))], gap=9000),
        Adapter(),
        blocks_of_a(3, 700, (24, 7), normal),
        Adapter(down=[Factor(normal(4, 3, 600), first=77, rank_first=40, rank=64)], gap=40000),
    ]
    x = normal(5, 7, 700)
    for rows in ((0, -1, 3, 2, 2, 1, 0), (-1,), (3,)):
        assert same_down(units, Down(x, Slots(adapters, rows)))
    slots = Slots(adapters, (0, 3, -1, 2))
    x[1, 3], x[2, 600] = np.inf, np.nan
    assert same_down(units, Down(x, slots, selected=(2, 3, 5, 6, 9, 10, 11)))


@pytest.mark.parametrize("fill", [any_bits, finite_bits, cancelling])
def test_values_of_a(units: Any, fill: Fill) -> None:
    """Any bits, all exponents, sums that cancel."""
    for k in (2, 70, 260):
        a = fill(k, k, 64).T  # neighbours along k cancel
        x = np.repeat(fill(k + 1, 2, k // 2), 2, axis=1)
        slots = Slots([Adapter(down=[Factor(np.ascontiguousarray(a))])], [0], columns=70)
        assert same_down(units, Down(x, slots))


def test_ties_of_h(units: Any) -> None:
    """Sums halfway between two FP16 values, and beside."""
    values = np.exp2(np.arange(-14, 16)).astype(np.float16)
    for odd in (0, 2.0**-10):
        first = (values.astype(np.float64) * (1 + odd)).astype(np.float16)
        half = (values.astype(np.float64) * 2.0**-11).astype(np.float16)
        for beside in (0, 2.0**-24, -(2.0**-24)):
            a = np.stack([first, half, np.full(30, beside, np.float16)], axis=1)
            slots = Slots([Adapter(down=[Factor(a)])], [0])
            assert same_down(units, Down(np.ones((1, 3), np.float16), slots))
            assert same_down(units, Down(-np.ones((1, 3), np.float16), slots))


@pytest.mark.parametrize("y_type", [FP16, FP32])
@pytest.mark.parametrize(
    ("k", "n", "rows", "rank"),
    [(1, 1, 1, 1), (33, 31, 2, 8), (70, 7, 1, 16), (257, 40, 3, 24), (300, 100, 1, 5)],
)  # fmt: skip
def test_shapes_of_b(units: Any, k: int, n: int, rows: int, rank: int, y_type: int) -> None:
    assert same_up(units, fp16(k, n, rows, y_type), Slots([plain_up(n, rank)], [0]))


@pytest.mark.parametrize("rank", [31, 32, 33, 64, 200, 256, 257, 300, 1024])
def test_ranks(units: Any, rank: int) -> None:
    """One segment to eight, and more ranks than a round has."""
    slots = Slots([plain_up(70, rank, h_first=3)], [0], columns=1100)
    assert same_up(units, fp16(40, 70, 1), slots)


def parts_of_b(seed: int, n: int, count: int, fill: Fill = normal, overlap: int = 0) -> Adapter:
    """Some columns of some parts have a factor, some ranks of an adapter."""
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.choice(n + 1, 2 * count, replace=False))
    up = []
    for i, (low, high) in enumerate(zip(cuts[::2], cuts[1::2], strict=True)):
        end = min(n, int(high) + overlap)
        ranks, first = int(generator.integers(1, 20)), int(generator.integers(0, 50))
        up.append(
            Factor(
                fill(seed + i, ranks, end - int(low)), first=int(low), rank_first=first,
                rank=-(-(first + ranks) // 8) * 8 + 8 * int(generator.integers(0, 30)),
                h_first=int(generator.integers(0, 9)), h_run=int(generator.integers(1, 80)),
                h_skip=int(generator.integers(0, 60)), scale=float(generator.choice(SCALES)),
            )
        )  # fmt: skip
    return Adapter(up=up, gap=int(generator.integers(0, 20000)))


@pytest.mark.parametrize("seed", range(6))
def test_parts_of_b(units: Any, seed: int) -> None:
    """Parts begin at any column; where they overlap they are added one after the other."""
    slots = Slots(
        [parts_of_b(seed, 150, 4), parts_of_b(seed + 50, 150, 3, overlap=40)],
        [0, 1, -1, 1], columns=6000,
    )  # fmt: skip
    assert same_up(units, fp16(50 + seed, 150, 4, FP16 if seed % 2 else FP32), slots)


@pytest.mark.parametrize("scale", SCALES)
def test_scales(units: Any, scale: float) -> None:
    adapters = [plain_up(60, 8, any_bits, scale=scale), plain_up(60, 8, scale=scale)]
    slots = Slots(adapters, [0, 1], h=any_bits)
    assert same_up(units, fp16(20, 60, 2), slots)
    plain = Slots(adapters[1:], [0])
    assert same_up(units, fp16(20, 60, 1, FP16), plain)


@pytest.mark.parametrize("fill", [any_bits, finite_bits, normal])
def test_values_of_b(units: Any, fill: Fill) -> None:
    for rank, y_type in ((1, FP32), (2, FP16), (48, FP32)):
        slots = Slots([plain_up(200, rank, fill, scale=0.3)], [0], h=fill)
        x, w = fill(1, 2, 3), fill(2, 3, 200)
        assert same_up(units, Matmul(x, w, fill(3, 200), y_type), slots)


def test_rows_and_slots_of_b(units: Any) -> None:
    adapters = [parts_of_b(9, 90, 2), Adapter(), plain_up(90, 12), plain_up(90, 40, seed=7)]
    for rows in ((0, -1, 3, 2, 2, 1, 0), (3, -1), (-1, 2)):
        assert same_up(units, fp16(70, 90, 7), Slots(adapters, rows, columns=6000))
    chosen = fp16(70, 90, 3, FP16, selected=(2, 5, 8))
    assert same_up(units, chosen, Slots(adapters, (0, -1, 3, 2), columns=6000, h=any_bits))


@pytest.mark.parametrize("group", [32, 64, 128])
def test_w4a16(units: Any, group: int) -> None:
    slots = Slots([parts_of_b(group, 75, 2), plain_up(75, 16)], [0, 1, -1], columns=6000)
    assert same_up(units, W4A16(384, 75, 3, group), slots)
    assert same_up(units, W4A16(128, 75, 2, group, FP16), slots)


@pytest.mark.parametrize("group", [0, 32, 64, 128])
@pytest.mark.parametrize("row_scales", [False, True])
def test_integers(units: Any, group: int, row_scales: bool) -> None:
    """W8A8 and W4A8; scales that are zero make sums of -0."""
    slots = Slots([parts_of_b(group, 75, 2), plain_up(75, 16)], [0, 1, -1], columns=6000)
    for seed, y_type in enumerate((FP16, FP32)):
        case = int8.Matmul(
            384, 75, 4, group, bias=seed == 0, row_scales=row_scales, y_type=y_type,
            extreme=0.2 * seed, seed=seed, selected=(1, 2, 4, 7),
        )  # fmt: skip
        assert same_up(units, case, slots)
    assert same_up(units, int8.Matmul(131 if group == 0 else 128, 33, 2, group), slots)


@pytest.mark.parametrize(("latency", "busy"), [(25, 0), (1, 128), (200, 30)])
def test_slow_memory(
    units: Any, memory: Callable[[int, int], None], latency: int, busy: int
) -> None:
    memory(latency, busy)
    slots = Slots([parts_of_b(5, 75, 3), plain_up(75, 300)], [0, 1, -1], columns=6000)
    assert same_up(units, fp16(100, 75, 3), slots)
    assert same_up(units, int8.Matmul(128, 75, 2, 32), slots)
    assert same_down(
        units, Down(normal(1, 2, 515), Slots([blocks_of_a(5, 515, (9, 20), normal)], [0]))
    )


def test_a_matmul_hides_its_adapter(units: Any) -> None:
    """Cycles: a tile's ranks are added while the next tile's sums are made."""
    case, before = fp16(1024, 256), rtl.simulated_work(units).cycles
    slots = Slots([plain_up(256, 16)], [0])
    assert same_up(units, case, slots)
    assert rtl.simulated_work(units).cycles - before < 1.15 * 8 * 1056


@pytest.mark.long
def test_a_million_products(units: Any) -> None:
    """Each of A and B, for each kind of weights."""
    for seed in range(4):
        a = Adapter(down=[Factor(normal(seed, 64, 4100))])
        assert same_down(units, Down(normal(seed + 9, 1, 4100), Slots([a], [0])))
        wild = Slots([blocks_of_a(seed, 3000, (60, 30), finite_bits)], [0], columns=90)
        assert same_down(units, Down(finite_bits(seed + 9, 1, 3000), wild))
    for seed in range(3):
        slots = Slots(
            [plain_up(1056, 200, normal, seed, scale=0.7), plain_up(1056, 160, finite_bits, seed)],
            [0, 1], columns=200, h=normal if seed else finite_bits, seed=seed,
        )  # fmt: skip
        cases = [fp16(64, 1056, 3, y_type) for y_type in (FP16, FP32)]
        cases += [int8.Matmul(128, 1056, 3, group, y_type=FP32, seed=seed) for group in (0, 32)]
        cases.append(W4A16(128, 1056, 3, 64))
        for case in cases:
            assert same_up(units, case, slots)
