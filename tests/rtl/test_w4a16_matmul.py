"""W4A16 on the simulated FP16 array against the NumPy model, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from tests.rtl.test_fp16_matmul import any_bits, finite_bits, memory, normal
from tests.rtl_rig import (
    FP16,
    FP32,
    X_OFFSET,
    Y_OFFSET,
    build,
    mistaken,
    padded,
    units_runner,
)
from tests.unit.kernel_rig import (
    CONTROL,
    NO_BANK,
    ONCHIP,
    TABLES,
    WEIGHT_BANKS,
    Result,
    Rig,
    Runner,
    numpy_runner,
)

pytestmark = pytest.mark.rtl

__all__ = ["memory"]
BLOCK_BYTES = {32: 2368, 64: 2240, 128: 2176}
Fill = Callable[[int, int], np.ndarray]


def run(
    runner: Runner, x: np.ndarray, n: int, group: int, scales: Fill, y_type: int, bias: Any = None
) -> tuple[Rig, Result]:
    """Every value and zero point at random; `scales(seed, count)` are FP16."""
    rig = Rig(bank_bytes=1 << 23, runner=runner)
    rows, k = x.shape
    rig.rows(rows)
    size, line, first, merge = BLOCK_BYTES[group], 3, 4, 3
    blocks = -(-k // 128) * -(-n // 32)
    for bank in range(WEIGHT_BANKS[0], sum(WEIGHT_BANKS)):
        count = blocks // WEIGHT_BANKS[1] + 2 * merge
        generator = np.random.default_rng(bank)
        data = generator.integers(0, 256, (count, size), np.uint8)
        each = 128 // group * 32
        data[:, 2048 : 2048 + 2 * each] = (
            scales(bank, count * each).reshape(count, each).view(np.uint8)
        )
        rig.place(bank, line * 64, data)
    x_stride, y_stride = padded(2 * k), padded(2 * y_type * n)
    rig.place_rows(ONCHIP, X_OFFSET, x_stride, x)
    if bias is not None:
        rig.place(TABLES, 128, bias)
    found = rig.run(
        "matrix", bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=merge,
        weight_type=abi.WEIGHT_W4A16 | (group.bit_length() - 1) << abi.WEIGHT_GROUP_SHIFT,
        weight_line=line, first=first, x_bank=ONCHIP, y_bank=CONTROL, k=k, n=n,
        x_offset=X_OFFSET, x_stride=x_stride, y_offset=Y_OFFSET, y_stride=y_stride, bias_line=2,
        bias_bank=NO_BANK if bias is None else TABLES, y_type=y_type,
    )  # fmt: skip
    return rig, found


def same(units: Any, *arguments: Any) -> bool:
    (model, wanted), (array, found) = (
        run(runner, *arguments) for runner in (numpy_runner, units_runner(units))
    )
    return wanted == found and all(
        np.array_equal(model.banks[b], array.banks[b]) for b in model.banks
    )


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize(("k", "n", "rows"), [(128, 32, 1), (384, 45, 2), (1664, 33, 1)])
def test_shapes(units: Any, group: int, k: int, n: int, rows: int) -> None:
    before = rtl.simulated_work().simulated
    assert same(units, normal(1, rows, k), n, group, normal, FP16, normal(3, n))
    assert same(units, normal(2, rows, k), n, group, normal, FP32)
    assert rtl.simulated_work().simulated == before + 2


def test_a_million_weights(units: Any) -> None:
    assert same(units, normal(1, 1, 1024), 1024, 128, normal, FP32)


@pytest.mark.parametrize("scales", [any_bits, finite_bits])
def test_single_weights(units: Any, scales: Fill) -> None:
    """Each row sees one weight of each column: every FP16 scale may come, rounded as 6.4 says."""
    x = np.zeros((8, 32), np.float16)
    x[np.arange(8), np.arange(8) * 4 + 1] = 1
    assert same(units, x, 4096, 32, scales, FP32)


def test_short_rows_and_slow_memory(units: Any, memory: Callable[[int, int], None]) -> None:
    """Biases arrive while weights of the next tile are unpacked."""
    for latency, busy in ((1, 0), (3, 0), (40, 100)):
        memory(latency, busy)
        for k in (32, 96, 256):
            assert same(units, normal(1, 2, k), 200, 32, normal, FP16, normal(3, 200))


def test_a_mistake_in_rounding_is_noticed(tmp_path: Path) -> None:
    right = "lost[3] && (kept[0] || lost[2:0] != 3'd0)"
    sources = mistaken(tmp_path, "mpu/w4_weight.sv", right, "lost[3]")
    units = build(tmp_path / "build", sources)
    x = np.zeros((1, 32), np.float16)
    x[0, 5] = 1
    assert not same(units, x, 640, 32, finite_bits, FP32)
