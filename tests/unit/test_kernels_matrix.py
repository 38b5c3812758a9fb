"""The NumPy matrix product against a scalar spelling of the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lora_host.segments import segment_bounds
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, SELECTED, TABLES, WEIGHT_BANKS, Rig

FP16, FP32 = 1, 2


def scalar_product(x: Any, w: Any) -> np.float32:
    """One sum along K, one operation after another."""
    sums = []
    for start, end in segment_bounds(len(x)):
        total = np.float32(0)
        for a, b in zip(x[start:end], w[start:end], strict=True):
            total = total + np.float32(a) * np.float32(b)
        sums.append(total)
    s = sums
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))


def random_fp16(seed: int, *shape: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    scale = np.exp2(generator.integers(-6, 3, shape))
    return (generator.standard_normal(shape) * scale).astype(np.float16)


def run_matrix(
    rig: Rig,
    x: Any,
    w: Any,
    bias: Any = None,
    y_type: int = FP32,
    flags: int = 0,
    y_offset: int = 1 << 19,
) -> tuple[np.ndarray, Any]:
    k, n = w.shape
    rig.place_rows(ONCHIP, 64, 2 * k + 64, x)
    rig.place_matrix(w, merge=2, first=5, line=3)
    if bias is not None:
        rig.place(TABLES, 128, bias)
    y_bank = CONTROL if y_type == FP32 else ONCHIP
    found = rig.run(
        "matrix", flags=flags, bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=2,
        weight_type=FP16, weight_line=3, first=5, x_bank=ONCHIP, y_bank=y_bank, k=k, n=n,
        x_offset=64, x_stride=2 * k + 64, y_offset=y_offset, y_stride=4 * n + 64, bias_line=2,
        bias_bank=NO_BANK if bias is None else TABLES, y_type=y_type,
    )  # fmt: skip
    assert found.status == 0
    dtype = np.float32 if y_type == FP32 else np.float16
    return rig.read_rows(y_bank, y_offset, 4 * n + 64, (len(x), n), dtype), found


def test_segments() -> None:
    assert segment_bounds(256) == tuple((32 * s, 32 * s + 32) for s in range(8))
    assert segment_bounds(64) == ((0, 0),) * 3 + ((0, 32),) + ((32, 32),) * 3 + ((32, 64),)
    assert segment_bounds(300)[-1] == (256, 300)
    assert sum(end - start for start, end in segment_bounds(1000)) == 1000


@pytest.mark.parametrize(("k", "n", "rows"), [(32, 32, 1), (300, 45, 3), (70, 7, 2), (416, 33, 1)])
def test_matrix_equals_the_scalar_order(k: int, n: int, rows: int) -> None:
    rig = Rig()
    rig.rows(rows)
    x, w, bias = random_fp16(1, rows, k), random_fp16(2, k, n), random_fp16(3, n)
    got, _ = run_matrix(rig, x, w)
    wanted = np.array([[scalar_product(x[i], w[:, j]) for j in range(n)] for i in range(rows)])
    assert got.tobytes() == wanted.astype(np.float32).tobytes()
    half, _ = run_matrix(rig, x, w, bias, FP16)
    biased = (wanted + bias.astype(np.float32)).astype(np.float16)
    assert half.tobytes() == biased.tobytes()


def test_order_matters_here() -> None:
    """The scalar comparison could not fail if any order gave these bits."""
    x, w = random_fp16(1, 300), random_fp16(2, 300)
    plain = np.float32(0)
    for a, b in zip(x, w, strict=True):
        plain = plain + np.float32(a) * np.float32(b)
    assert plain != scalar_product(x, w)


def test_many_rows_and_columns_equal_single_ones() -> None:
    rig = Rig(bank_bytes=1 << 22)
    x, w = random_fp16(4, 64, 256), random_fp16(5, 256, 520)
    rig.rows(64)
    together, _ = run_matrix(rig, x, w)
    for i in (0, 33, 63):
        rig.rows(1)
        alone, _ = run_matrix(rig, x[i : i + 1], w)
        assert alone.tobytes() == together[i].tobytes()


def test_selected_rows_and_nonfinite_counts() -> None:
    rig = Rig()
    rig.rows(9, selected=[2, 5, 8])
    x, w = random_fp16(6, 3, 64), random_fp16(7, 64, 40)
    x[1, 3] = np.inf
    x[2, 0] = np.nan
    got, found = run_matrix(rig, x, w, y_type=FP16, flags=SELECTED)
    assert found.nonfinite_count == 80
    assert found.nonfinite_row == 5
    assert set(got[2].view(np.uint16).tolist()) == {0x7E00}
    logits, _ = run_matrix(rig, x, w, flags=SELECTED)
    assert set(logits[2].view(np.uint32).tolist()) == {0x7FC00000}
    x[:] = 0
    _, found = run_matrix(rig, x, w, flags=SELECTED)
    assert (found.nonfinite_count, found.nonfinite_row) == (0, 0xFFFFFFFF)


def test_no_selected_rows_writes_nothing() -> None:
    rig = Rig()
    rig.rows(4, selected=[])
    before = {bank: memory.copy() for bank, memory in rig.banks.items() if bank != ONCHIP}
    x, w = random_fp16(6, 4, 64), random_fp16(7, 64, 40)
    run_matrix(rig, x, w, flags=SELECTED)
    assert (rig.banks[CONTROL] == before[CONTROL]).all()


def test_overflow_is_infinity() -> None:
    rig = Rig()
    rig.rows(1)
    x, w = np.full((1, 32), 60000, np.float16), np.full((32, 32), 2, np.float16)
    got, found = run_matrix(rig, x, w, y_type=FP16)
    assert (got == np.inf).all() and found.nonfinite_count == 32


def test_a_flipped_weight_byte_changes_the_result() -> None:
    rig = Rig()
    rig.rows(1)
    x, w = random_fp16(8, 1, 128), random_fp16(9, 128, 32)
    before, _ = run_matrix(rig, x, w)
    w.view(np.uint8)[77, 20] ^= 0x10
    after, _ = run_matrix(rig, x, w)
    assert (before != after).sum() == 1
