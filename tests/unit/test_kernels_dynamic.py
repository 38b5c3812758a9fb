"""Rows of INT8 with scales of their own: every native variant against the NumPy model bit for bit,
and both against the rule as docs/numbers.md, 6.10 spells it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import abi
from tests.unit.kernel_rig import ONCHIP, TABLES, Rig
from tests.unit.test_kernels_native import run_native, values
from tests.unit.test_kernels_quantized import (
    FEW,
    INT8,
    STRIDE,
    W4A8,
    X,
    Y,
    both,
    fill_weights,
    random_bytes,
    run_vector,
    variant,  # noqa: F401  a fixture
)

Z = Y + (1 << 18)
ROWS = 3
OWN = abi.dtype("row_scale")


def spelled(x: np.ndarray, top: np.float32) -> tuple[list[int], np.float32]:
    """One row whose largest magnitude over all boards is `top`."""
    inverse = np.float32(127) / top if top > 0 else np.float32(0)
    values = [max(-127, min(127, int(np.rint(np.float32(v) * inverse)))) for v in x]
    return values, np.float32(top * np.float32(float.fromhex("0x1.020408p-7")))


@settings(FEW, max_examples=6)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(0, 300),
    extreme=st.sampled_from([0.0, 0.02, 0.5]),
    first=st.integers(0, 7),
    zero=st.booleans(),
)
def test_row_max_then_quantize_row(
    variant: str,  # noqa: F811
    seed: int,
    columns: int,
    extreme: float,
    first: int,
    zero: bool,
) -> None:
    x = values(seed, (ROWS, columns), extreme, True)
    x[1] = -0.0 if zero else x[1]
    others = np.random.default_rng(seed).uniform(0, 0.01, (ROWS, 16)).astype(np.float32)

    def build(rig: Rig) -> Any:
        rig.rows(ROWS)
        rig.place_rows(ONCHIP, X, STRIDE, x)
        rig.place_rows(ONCHIP, Z, STRIDE, others)
        run_vector(rig, abi.VEC_ROW_MAX, columns, first=first, extra=8)
        return run_vector(rig, abi.VEC_QUANTIZE_ROW, columns, extra=8)

    both(build)


def test_the_rule_as_it_is_spelled(variant: str) -> None:  # noqa: F811
    """Two boards: the largest magnitude is the other's in row 0, its own in row 1, 0 in row 2."""
    x = np.random.default_rng(1).normal(0, 3, (ROWS, 77)).astype(np.float16)
    x[2], x[1, 50] = 0, -20
    own = np.abs(x).max(axis=1).astype(np.float32)
    theirs = np.array([2 * own[0], 1.5, 0], np.float32)
    rig = Rig(runner=run_native)
    rig.rows(ROWS)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place_rows(ONCHIP, Z + 4, STRIDE, theirs[:, None])
    assert run_vector(rig, abi.VEC_ROW_MAX, 77, first=0, extra=2).status == 0
    assert run_vector(rig, abi.VEC_QUANTIZE_ROW, 77, extra=2).status == 0
    y = rig.read_rows(ONCHIP, Y, STRIDE, (ROWS, 77), np.int8)
    z = rig.read_rows(ONCHIP, Z, STRIDE, (ROWS, 1), OWN)[:, 0]
    assert z["maxima"][:, 0].tolist() == own.tolist()
    for row in range(ROWS):
        want, scale = spelled(x[row], max(own[row], theirs[row]))
        assert y[row].tolist() == want
        assert z["scale"][row] == scale
    assert np.abs(y[1]).max() == 127 and np.abs(y[0]).max() < 127


def test_the_division_comes_before_the_product(variant: str) -> None:  # noqa: F811
    """Halves of a max lie at 63.5, where another spelling rounds to another integer."""
    top = (1 + np.arange(1, 33) / 1024).astype(np.float16)
    x = np.stack([top, top / 2], axis=1)
    rig = Rig(runner=run_native)
    rig.rows(len(x))
    rig.place_rows(ONCHIP, X, STRIDE, x)
    run_vector(rig, abi.VEC_ROW_MAX, 2, extra=1)
    run_vector(rig, abi.VEC_QUANTIZE_ROW, 2, extra=1)
    y = rig.read_rows(ONCHIP, Y, STRIDE, x.shape, np.int8)[:, 1].tolist()
    wide, value = top.astype(np.float32), x[:, 1].astype(np.float32)
    assert y == [spelled(row, t)[0][1] for row, t in zip(x, wide, strict=True)]
    scale = wide / np.float32(127)
    for other in (value / scale, value * (np.float32(1) / scale)):
        assert np.rint(other).astype(int).tolist() != y


@pytest.mark.parametrize(("kind", "group"), [(INT8, 0), (W4A8, 32), (W4A8, 128)])
def test_a_matmul_of_rows_with_scales(variant: str, kind: int, group: int) -> None:  # noqa: F811
    """Times the columns' scales, then times the row's own, not its neighbour's; then the bias."""
    k, n, rows = 256, 70, 4
    x = random_bytes(5, rows, k)
    own = np.zeros(rows, OWN)
    own["scale"] = [0.5, 3.1, 0.007, 11.3]
    columns = np.random.default_rng(6).uniform(1e-4, 1e-3, n).astype(np.float32)
    log2 = group.bit_length() - 1 if group else 0

    def build(rig: Rig, flags: int = abi.FLAG_ROW_SCALES) -> np.ndarray:
        rig.rows(rows)
        fill_weights(rig, 9, group, 0.0)
        rig.place_rows(ONCHIP, X, STRIDE, x)
        rig.place_rows(ONCHIP, X + k, STRIDE, own)
        rig.place(TABLES, 640, columns)
        done = rig.run(
            "matrix", flags=flags | abi.FLAG_NO_BIAS, bank_count=3, merge=1,
            weight_type=kind | log2 << 4, k=k, n=n, x_bank=ONCHIP, x_offset=X, x_stride=STRIDE,
            y_bank=ONCHIP, y_offset=Y, y_stride=STRIDE, bias_bank=TABLES, bias_line=10,
            y_type=abi.FP32, weight_line=3,
        )  # fmt: skip
        assert done.status == 0
        return rig.read_rows(ONCHIP, Y, STRIDE, (rows, n), np.float32)

    both(lambda rig: build(rig).tobytes())
    plain = build(Rig(runner=run_native), 0)
    assert np.isfinite(plain).all() and plain.any()
    scaled = build(Rig(runner=run_native))
    assert scaled.tobytes() == (plain * own["scale"][:, None]).tobytes()


BAD = [("extra", 0), ("extra", 9), ("first", 2), ("z_offset", 1 << 20), ("z_stride", 62)]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_field_is_refused(field: str, value: int) -> None:
    rig = Rig(runner=run_native)
    rig.rows(ROWS)
    good = {
        "op": abi.VEC_ROW_MAX, "columns": 8, "x_offset": X, "x_stride": STRIDE, "z_offset": Z,
        "z_stride": STRIDE, "first": 1, "extra": 2,
    }  # fmt: skip
    assert rig.run("vector", **good).status == 0
    assert rig.run("vector", **{**good, field: value}).status in {2, 5}


def test_rows_of_fp16_have_no_scales() -> None:
    rig = Rig(runner=run_native)
    rig.rows(1)
    fields = {"bank_count": 3, "merge": 1, "k": 128, "n": 40, "x_bank": ONCHIP, "y_bank": ONCHIP,
              "x_stride": 512, "y_offset": 4096, "y_stride": 128, "bias_bank": 255,
              "y_type": abi.FP16, "weight_type": abi.WEIGHT_FP16, "weight_line": 3}  # fmt: skip
    assert rig.run("matrix", **fields).status == 0
    assert rig.run("matrix", **fields, flags=abi.FLAG_ROW_SCALES).status == 4
