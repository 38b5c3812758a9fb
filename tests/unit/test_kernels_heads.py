"""Norms of heads and scaled operations: the NumPy kernels against scalar spellings of the contract,
and every native variant against the NumPy kernels, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import abi, numerics
from lora_host.coefficients import coefficients
from lora_host.segments import segment_bounds
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, SELECTED, TABLES, Rig
from tests.unit.test_kernels_native import FEW, KINDS, both, run_native, values
from tests.unit.test_kernels_vector import (
    STRIDE,
    X,
    Y,
    Z,
    bits,
    output,
    place_table,
    random_fp16,
    run_vector,
)

F = np.float32
EPS = 1e-6


def scalar_squares(x: np.ndarray) -> np.float32:
    sums = []
    for start, end in segment_bounds(len(x)):
        total = F(0)
        for value in x[start:end]:
            total = total + F(value) * F(value)
        sums.append(total)
    a, b, c, d, e, f, g, h = sums
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


def scalar_norm(x: np.ndarray, total: np.float32, width: int, gamma: np.ndarray) -> np.ndarray:
    r = F(1) / np.sqrt(total / F(width) + F(EPS))
    return np.array([(F(v) * r) * F(g) for v, g in zip(x, gamma, strict=True)], np.float16)


@pytest.mark.parametrize("head_dim", [16, 72, 300])
def test_norm_of_each_head(head_dim: int) -> None:
    rig = Rig()
    rig.rows(2)
    x, gamma = random_fp16(1, 2, 3 * head_dim), random_fp16(2, head_dim)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place(TABLES, 640, gamma)
    fields = {"extra": head_dim, "a_bank": TABLES, "a_line": 10, "scalar": bits(EPS)}
    run_vector(rig, abi.VEC_RMS_HEADS, 3 * head_dim, **fields)
    for row, got in zip(x, output(rig, 2, 3 * head_dim), strict=True):
        for head, found in zip(row.reshape(3, -1), got.reshape(3, -1), strict=True):
            wanted = scalar_norm(head, scalar_squares(head), head_dim, gamma)
            assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("head_dim", [16, 72])
def test_norm_of_a_row_over_boards(head_dim: int) -> None:
    """Boards with three and two heads: each writes its own sums, and all of them make the norm."""
    width = 5 * head_dim
    x, gamma = random_fp16(1, 2, width), random_fp16(2, width)
    rigs = []
    for first, stop in ((0, 3 * head_dim), (3 * head_dim, width)):
        rig = Rig()
        rig.rows(2)
        rig.list.head_dim = head_dim
        rig.place_rows(ONCHIP, X, STRIDE, x[:, first:stop])
        run_vector(rig, abi.VEC_HEAD_SUMS, stop - first, extra=width, first=first)
        rigs.append((rig, first, stop))
    sums = [rig.read_rows(ONCHIP, Z, STRIDE, (2, 5), np.float32) for rig, _, _ in rigs]
    assert np.isnan(sums[0][:, 3:]).all() and np.isnan(sums[1][:, :3]).all()  # not touched
    joined = np.concatenate([sums[0][:, :3], sums[1][:, 3:]], axis=1)
    wanted = np.empty((2, width), np.float16)
    for row, found in zip(x, wanted, strict=True):
        total = F(0)
        for head in row.reshape(5, -1):
            total = total + scalar_squares(head)
        found[:] = scalar_norm(row, total, width, gamma)
    for rig, first, stop in rigs:
        rig.place_rows(ONCHIP, Z, STRIDE, joined)
        rig.place(TABLES, 640, gamma[first:stop])
        fields = {"extra": width, "first": first, "a_bank": TABLES, "a_line": 10}
        run_vector(rig, abi.VEC_RMS_ROW, stop - first, scalar=bits(EPS), **fields)
        assert output(rig, 2, stop - first).tobytes() == wanted[:, first:stop].tobytes()


def test_scaled_operations() -> None:
    rig = Rig()
    rig.rows(2)
    tokens, x, z = random_fp16(1, 9, 40), random_fp16(2, 2, 40), random_fp16(3, 2, 40)
    place_table(rig, 64, tokens)
    rig.state.rows[0].token, rig.state.rows[1].token = 8, 3
    factor = F(12.7)
    run_vector(rig, abi.VEC_EMBED_SCALED, 40, a_bank=TABLES, a_line=1, scalar=bits(factor))
    wanted = (tokens[[8, 3]].astype(F) * factor).astype(np.float16)
    assert output(rig, 2, 40).tobytes() == wanted.tobytes()
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place_rows(ONCHIP, Z, STRIDE, z)
    run_vector(rig, abi.VEC_RESIDUAL_SCALED, 40, scalar=bits(factor))
    wanted = (x.astype(F) + z.astype(F) * factor).astype(np.float16)
    assert output(rig, 2, 40).tobytes() == wanted.tobytes()


def test_scaled_logits_of_the_selected_rows() -> None:
    rig = Rig()
    rig.rows(3, selected=[0, 2])
    x = np.random.default_rng(1).standard_normal((2, 50)).astype(F)
    x[1, 7] = np.nan
    rig.place_rows(CONTROL, Y, STRIDE, x)
    fields = {"flags": SELECTED, "y_bank": CONTROL, "scalar": bits(0.3)}
    found = run_vector(rig, abi.VEC_SCALE, 50, **fields)
    got = rig.read_rows(CONTROL, Y, STRIDE, (2, 50), F)
    assert np.array_equal(got, x * F(0.3), equal_nan=True)
    assert (found.nonfinite_count, found.nonfinite_row) == (1, 2)


@FEW
@given(kind=KINDS, head_dim=st.integers(1, 150), heads=st.integers(1, 5), more=st.integers(0, 2))
def test_native_norms_of_heads(kind: Any, head_dim: int, heads: int, more: int) -> None:
    seed, extreme, wide = kind
    columns, width = head_dim * heads, head_dim * (heads + 2)

    def build(rig: Rig) -> Any:
        rig.rows(2)
        rig.list.head_dim = head_dim
        rig.place_rows(ONCHIP, X, STRIDE, values(seed, (2, columns), extreme / 20, wide))
        rig.place_rows(ONCHIP, Z, STRIDE, np.full((2, heads + 2), 0.5, F))
        rig.place(TABLES, 640, values(seed + 1, (columns,), extreme / 20, False))
        table = {"a_bank": TABLES, "a_line": 10, "scalar": bits(EPS)}
        one = run_vector(rig, abi.VEC_RMS_HEADS, columns, extra=head_dim, **table)
        fields = {"extra": width, "first": more * head_dim}
        two = run_vector(rig, abi.VEC_HEAD_SUMS, columns, **fields)
        target = {"y_offset": Y + 65536}
        return one, two, run_vector(rig, abi.VEC_RMS_ROW, columns, **fields, **table, **target)

    both(build)


@FEW
@given(kind=KINDS, columns=st.integers(1, 300), factor=st.sampled_from([0.22, 12.0, 1e30]))
def test_native_scaled_operations(kind: Any, columns: int, factor: float) -> None:
    seed, extreme, wide = kind

    def build(rig: Rig) -> Any:
        rig.rows(2)
        place_table(rig, 64, values(seed, (9, columns), extreme, wide))
        rig.state.rows[0].token, rig.state.rows[1].token = 8, 3
        rig.place_rows(ONCHIP, X, STRIDE, values(seed + 1, (2, columns), extreme, wide))
        rig.place_rows(ONCHIP, Z, STRIDE, values(seed + 2, (2, columns), extreme, wide))
        rig.place_rows(CONTROL, Y, STRIDE, values(seed + 3, (2, columns), extreme, wide).astype(F))
        scalar = {"scalar": bits(factor)}
        one = run_vector(rig, abi.VEC_EMBED_SCALED, columns, a_bank=TABLES, a_line=1, **scalar)
        two = run_vector(rig, abi.VEC_RESIDUAL_SCALED, columns, y_offset=Y + 65536, **scalar)
        return one, two, run_vector(rig, abi.VEC_SCALE, columns, y_bank=CONTROL, **scalar)

    both(build)


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        (abi.VEC_RMS_HEADS, {"extra": 0}),
        (abi.VEC_RMS_HEADS, {"extra": 24}),
        (abi.VEC_HEAD_SUMS, {"extra": 0}),
        (abi.VEC_HEAD_SUMS, {"extra": 72}),
        (abi.VEC_HEAD_SUMS, {"extra": 64, "first": 16}),
        (abi.VEC_RMS_ROW, {"extra": 64, "first": 8}),
        (abi.VEC_RMS_ROW, {"extra": 64, "a_bank": NO_BANK}),
    ],
)
def test_native_kernels_refuse_ragged_heads(op: int, fields: dict[str, int]) -> None:
    rig = Rig(runner=run_native)
    rig.rows(1)
    rig.list.head_dim = 16
    command = {"op": op, "columns": 64, "x_offset": X, "x_stride": STRIDE, "y_bank": ONCHIP,
               "y_offset": Y, "y_stride": STRIDE, "z_offset": Z, "z_stride": STRIDE,
               "a_bank": TABLES, "a_line": 10, **fields}  # fmt: skip
    assert rig.run("vector", **command).status in (abi.ERR_SIZE, abi.ERR_ADDRESS)


def test_a_norm_by_one_plus_gamma() -> None:
    """1 + gamma is a sum in FP32: rounded to FP16 some results would differ."""
    rig = Rig()
    rig.rows(2)
    rig.list.head_dim = 24
    x, gamma = random_fp16(1, 2, 72), (random_fp16(2, 24).astype(F) / 64).astype(np.float16)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place(TABLES, 640, gamma)
    fields = {"extra": 24, "a_bank": TABLES, "a_line": 10, "scalar": bits(EPS)}
    flags = {"flags": abi.FLAG_ONE_PLUS, "b_line": bits(0.25)}
    run_vector(rig, abi.VEC_RMS_HEADS, 72, **fields, **flags)
    wanted, rounded = np.empty((2, 3, 24), np.float16), np.empty((2, 3, 24), np.float16)
    for row in range(2):
        for head in range(3):
            values = x[row].reshape(3, 24)[head]
            r = F(0.25) / np.sqrt(scalar_squares(values) / F(24) + F(EPS))
            for i, value in enumerate(values):
                wanted[row, head, i] = (F(value) * r) * (F(1) + F(gamma[i]))
                rounded[row, head, i] = (F(value) * r) * F(np.float16(F(1) + F(gamma[i])))
    assert output(rig, 2, 72).tobytes() == wanted.tobytes() != rounded.tobytes()


def scalar_cap(x: float, cap: float) -> np.float32:
    terms, value = coefficients("tanh_c"), F(x) * (F(1) / F(cap))
    if abs(value) < F(0.625):
        square, p = value * value, terms[0]
        for term in terms[1:]:
            p = p * square + term
        return (value + (value * square) * p) * F(cap)
    size = F(abs(value))
    tanh = F(1) - F(2) / (numerics.exp32(size + size) + F(1))
    return F(-tanh if value < 0 else tanh) * F(cap)


def test_capped_logits() -> None:
    rig = Rig()
    rig.rows(2)
    x = np.random.default_rng(1).normal(0, 20, (2, 50)).astype(F)
    x[1, :4] = [np.inf, -np.inf, np.nan, -0.0]
    rig.place_rows(CONTROL, Y, STRIDE, x)
    found = run_vector(rig, abi.VEC_SOFTCAP, 50, y_bank=CONTROL, scalar=bits(30))
    got = rig.read_rows(CONTROL, Y, STRIDE, (2, 50), F)
    assert list(got[1, :2]) == [30, -30] and np.isnan(got[1, 2]) and got[1, 3] == 0
    assert (found.nonfinite_count, found.nonfinite_row) == (1, 1)
    finite = np.isfinite(x)
    wanted = np.array([scalar_cap(value, 30) for value in x[finite]], F)
    assert got[finite].tobytes() == wanted.tobytes()
    exact = 30 * np.tanh(x[finite].astype(np.float64) / 30)
    assert np.abs(got[finite] - exact).max() < 4e-6


@settings(FEW, max_examples=5)
@given(kind=KINDS, columns=st.integers(1, 300), cap=st.sampled_from([0.3, 30.0, 1e30]))
def test_native_soft_caps_and_geglu(kind: Any, columns: int, cap: float) -> None:
    seed, extreme, wide = kind

    def build(rig: Rig) -> Any:
        rig.rows(2)
        rig.place_rows(ONCHIP, X, STRIDE, values(seed, (2, columns), extreme, wide))
        rig.place_rows(ONCHIP, Z, STRIDE, values(seed + 1, (2, columns), extreme, wide))
        rig.place_rows(CONTROL, Y, STRIDE, values(seed + 2, (2, columns), extreme, wide).astype(F))
        one = run_vector(rig, abi.VEC_GEGLU, columns)
        return one, run_vector(rig, abi.VEC_SOFTCAP, columns, y_bank=CONTROL, scalar=bits(cap))

    both(build)


def test_native_soft_caps_around_the_end_of_the_polynomial() -> None:
    def build(rig: Rig) -> Any:
        rig.rows(2)
        x = np.linspace(-0.8, 0.8, 600, dtype=F) * F(30)
        rig.place_rows(CONTROL, Y, STRIDE, x.reshape(2, 300))
        return run_vector(rig, abi.VEC_SOFTCAP, 300, y_bank=CONTROL, scalar=bits(30))

    both(build)


@settings(FEW, max_examples=5)
@given(kind=KINDS, head_dim=st.integers(1, 150), heads=st.integers(1, 3))
def test_native_norms_by_one_plus_gamma(kind: Any, head_dim: int, heads: int) -> None:
    seed, extreme, wide = kind
    columns = head_dim * heads

    def build(rig: Rig) -> Any:
        rig.rows(2)
        rig.list.head_dim = head_dim
        rig.place_rows(ONCHIP, X, STRIDE, values(seed, (2, columns), extreme / 20, wide))
        rig.place_rows(ONCHIP, Z, STRIDE, np.full((2, 8 + heads), 0.5, F))
        rig.place(TABLES, 640, values(seed + 1, (columns,), extreme / 20, False))
        fields = {"a_bank": TABLES, "a_line": 10, "scalar": bits(EPS), "b_line": bits(2.0**-6),
                  "flags": abi.FLAG_ONE_PLUS}  # fmt: skip
        whole = {**fields, "extra": columns}
        return (
            run_vector(rig, abi.VEC_RMS_HEADS, columns, **{**fields, "extra": head_dim}),
            run_vector(rig, abi.VEC_RMS_APPLY, columns, y_offset=Y + 65536, **whole),
            run_vector(rig, abi.VEC_RMS_ROW, columns, y_offset=Y + 131072, **whole),
        )

    both(build)
