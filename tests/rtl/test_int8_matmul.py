"""W8A8 and W4A8 on the simulated INT8 array against the NumPy model, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from tests.rtl.test_fp16_matmul import memory
from tests.rtl_rig import FP16, FP32, build, first_then_long, mistaken, padded, units_runner
from tests.unit.kernel_rig import (
    CONTROL,
    ONCHIP,
    SELECTED,
    TABLES,
    WEIGHT_BANKS,
    Result,
    Rig,
    Runner,
    numpy_runner,
)
from tests.unit.test_kernels_native import values
from tests.unit.test_kernels_quantized import BLOCK_BYTES, place_scales, random_bytes

pytestmark = pytest.mark.rtl

__all__ = ["memory"]
X, Y, LINE, FIRST = 64, 1 << 20, 3, 4
ROW_SCALES = np.array([1, 0.37, -1e-40, np.inf, np.nan, 0, -0.0, 3e38], np.float32)


@dataclass
class Matmul:
    """Random weights and scales of one matmul. `group` 0 is W8A8. `extreme`: the share of the
    largest integers and of zero, infinite, NaN and subnormal scales."""

    k: int
    n: int
    rows: int = 1
    group: int = 0
    bias: bool = True
    row_scales: bool = False
    y_type: int = FP16
    extreme: float = 0.0
    seed: int = 1
    selected: tuple[int, ...] | None = None
    merge: int = 3
    positive: bool = False  # weights and x, so that sums grow

    def run(self, runner: Runner) -> tuple[Rig, Result]:
        rig = Rig(bank_bytes=1 << 22, runner=runner)
        count = self.rows if self.selected is None else max(self.selected) + 1
        rig.rows(count, self.selected)
        self._weights(rig)
        place_scales(rig, self.seed, self.n, self.extreme)
        x = random_bytes(self.seed + 7, self.rows, self.k, extreme=self.extreme)
        if self.positive:
            x &= 0x7F
        x_stride, y_stride = padded(self.k) + 128, padded(2 * self.y_type * self.n) + 64
        rig.place_rows(ONCHIP, X, x_stride, x)
        chosen = np.random.default_rng(self.seed + 8).choice(ROW_SCALES, (self.rows, 1))
        rig.place_rows(ONCHIP, X + padded(self.k) + 32, x_stride, chosen)
        kind, log2 = (
            (abi.WEIGHT_W4A8, self.group.bit_length() - 1) if self.group else (abi.WEIGHT_INT8, 0)
        )
        flags = 0 if self.selected is None else SELECTED
        flags |= 0 if self.bias else abi.FLAG_NO_BIAS
        flags |= abi.FLAG_ROW_SCALES if self.row_scales else 0
        found = rig.run(
            "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=self.merge,
            weight_type=kind | log2 << abi.WEIGHT_GROUP_SHIFT, weight_line=LINE, first=FIRST,
            x_bank=ONCHIP, y_bank=CONTROL, k=self.k, n=self.n, x_offset=X, x_stride=x_stride,
            y_offset=Y, y_stride=y_stride, bias_line=2, bias_bank=TABLES, y_type=self.y_type,
            flags=flags,
        )  # fmt: skip
        return rig, found

    def _weights(self, rig: Rig) -> None:
        """Every byte is a weight, also in what pads a block."""
        size, each = BLOCK_BYTES[self.group], 64 * 128 // self.group if self.group else 0
        blocks = -(-self.k // 128) * -(-self.n // 32)
        for bank in range(WEIGHT_BANKS[0], sum(WEIGHT_BANKS)):
            count = blocks // WEIGHT_BANKS[1] + 2 * self.merge + 2
            generator = np.random.default_rng(self.seed + bank)
            data = generator.integers(0, 256, (count, size)).astype(np.uint8)
            if self.extreme:
                data[generator.random(data.shape) < self.extreme] = 0x80
            if self.positive:
                data &= 0x7F
            if self.group:
                scales = values(self.seed + bank, (count, each // 2), self.extreme / 8, False)
                data[:, 2048 : 2048 + each] = scales.view(np.uint8)
            rig.place(bank, LINE * 64, data)


def same(units: Any, matmul: Matmul) -> bool:
    (model, wanted), (array, found) = (
        matmul.run(runner) for runner in (numpy_runner, units_runner(units))
    )
    return wanted == found and all(
        np.array_equal(model.banks[b], array.banks[b]) for b in model.banks
    )


def simulated(units: Any, matmul: Matmul) -> bool:
    """Whether the unit itself did it, the same as the model."""
    before = rtl.simulated_work(units).simulated
    return same(units, matmul) and rtl.simulated_work(units).simulated == before + 1


@pytest.mark.parametrize("y_type", [FP16, FP32])
@pytest.mark.parametrize(
    ("k", "n", "rows"),
    [(1, 1, 1), (3, 33, 2), (31, 16, 1), (64, 17, 3), (126, 47, 1), (128, 32, 2), (131, 64, 1),
     (255, 96, 1), (700, 45, 2)],
)  # fmt: skip
def test_shapes_of_w8a8(units: Any, k: int, n: int, rows: int, y_type: int) -> None:
    for bias in (True, False):
        assert simulated(units, Matmul(k, n, rows, bias=bias, y_type=y_type))


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize(
    ("k", "n", "rows"), [(128, 32, 1), (384, 45, 2), (1664, 33, 1), (1152, 7, 3)]
)
def test_shapes_of_w4a8(units: Any, group: int, k: int, n: int, rows: int) -> None:
    """Segments end inside groups: 1664 has 52 units, 1152 has 36."""
    assert simulated(units, Matmul(k, n, rows, group))
    assert simulated(units, Matmul(k, n, rows, group, bias=False, y_type=FP32, seed=2))


@pytest.mark.parametrize("units_of_k", range(1, 18))
def test_all_cuts_of_short_rows(units: Any, units_of_k: int) -> None:
    """Empty segments, and segments of one unit to three."""
    assert simulated(units, Matmul(32 * units_of_k, 40, 1, 32, y_type=FP32, seed=units_of_k))


@pytest.mark.parametrize("group", [0, 32, 128])
@pytest.mark.parametrize("row_scales", [False, True])
def test_extreme_values(units: Any, group: int, row_scales: bool) -> None:
    for seed in range(4):
        matmul = Matmul(
            384, 320, 8, group, bias=seed % 2 == 0, row_scales=row_scales, extreme=0.3,
            seed=10 * seed, y_type=FP32 if seed < 2 else FP16,
        )  # fmt: skip
        assert simulated(units, matmul)


@pytest.mark.parametrize("group", [0, 128])
def test_a_million_products(units: Any, group: int) -> None:
    matmul = Matmul(1024, 1024, 1, group, y_type=FP32)
    assert same(units, matmul)
    before = rtl.simulated_work(units)
    matmul.run(units_runner(units))
    after = rtl.simulated_work(units)
    assert after.products - before.products == 1 << 20
    # a line a cycle: a tile of W8A8 has 512, one of W4A8 272 with scales and zero points
    cycles = (after.cycles - before.cycles) / 32
    assert cycles < (1.05 * 512 if group == 0 else 1.1 * 272)


@pytest.mark.parametrize("group", [0, 64])
def test_selected_rows_and_placement(units: Any, group: int) -> None:
    for merge in (1, 4, 255):
        assert simulated(
            units, Matmul(256, 70, 3, group, selected=(2, 5, 8), merge=merge, extreme=0.2)
        )


def test_sums_beyond_24_bits(units: Any) -> None:
    """FP32 rounds them."""
    assert simulated(units, Matmul(8191, 96, y_type=FP32, positive=True))
    assert simulated(units, Matmul(32767, 33, y_type=FP32, positive=True))


def test_slow_memory(units: Any, memory: Callable[[int, int], None]) -> None:
    for latency, busy in ((3, 0), (40, 100), (200, 30)):
        memory(latency, busy)
        for group, k in ((0, 300), (32, 320), (128, 256)):
            assert simulated(units, Matmul(k, 100, 2, group, row_scales=True))


@pytest.mark.parametrize(("rows", "depth"), [(3, 8), (2, 4)])
def test_other_sizes(tmp_path: Path, rows: int, depth: int) -> None:
    other = build(tmp_path, rows=rows, unit="int8", depth=depth)
    assert simulated(other, Matmul(300, 75, 7, row_scales=True))
    assert simulated(other, Matmul(128, 300, 8, extreme=0.3))
    if depth == 8:
        assert simulated(other, Matmul(1664, 75, 7, 64, row_scales=True))


MISTAKES = {
    "no borrow of the packed product": (
        "mpu/integer_pair.sv", "+ {31'd0, sum[17]}", ""
    ),
    "ties away from zero in an integer's FP32": (
        "fp/int_to_float.sv", "(shifted[8] || shifted[6:0] != 7'd0)", "1'b1"
    ),
    "groups are not cut at segments": (
        "mpu/integer_schedule.sv", "assign part_end = group_end || segment_end",
        "assign part_end = group_end"
    ),
    "the last columns' bias is not converted": (
        "mpu/integer_finish.sv", "left != 6'd0) bias_single", "left > 6'd16) bias_single"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    path, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    units = build(tmp_path / "build", sources, unit="int8")
    matmuls = (
        Matmul(8191, 64, y_type=FP32, bias=False, positive=True),
        Matmul(1664, 64, 1, 128, y_type=FP32, bias=False),
        Matmul(128, 64, y_type=FP32),
    )
    assert not all(same(units, matmul) for matmul in matmuls)
