"""The vector unit's operations against scalar spellings of the contract."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lora_host.emu import norm
from lora_host.numerics import exp32, gelu
from lora_host.segments import segment_bounds
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, SELECTED, TABLES, Rig, refusing_runner

F = np.float32
X, Y, Z = 64, 1 << 17, 1 << 18
STRIDE = 2048
EMBED, ADD_POSITION, LN_SUMS, RMS_SUMS, LN_APPLY, RMS_APPLY, ROPE, RESIDUAL, RELU = range(1, 10)
GELU_TANH, GELU_ERF, SWIGLU, ARGMAX = range(10, 14)


def random_fp16(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def run_vector(rig: Rig, op: int, columns: int, **fields: Any) -> Any:
    defaults = {
        "op": op, "columns": columns, "x_offset": X, "x_stride": STRIDE, "y_bank": ONCHIP,
        "y_offset": Y, "y_stride": STRIDE, "z_offset": Z, "z_stride": STRIDE,
        "a_bank": NO_BANK, "b_bank": NO_BANK,
    }  # fmt: skip
    found = rig.run("vector", **{**defaults, **fields})
    assert found.status == 0
    return found


def output(rig: Rig, rows: int, columns: int) -> np.ndarray:
    return rig.read_rows(ONCHIP, Y, STRIDE, (rows, columns), np.float16)


def place_table(rig: Rig, offset: int, table: np.ndarray) -> None:
    stride = -(-table.itemsize * table.shape[1] // 64) * 64
    rig.place_rows(TABLES, offset, stride, table)


def scalar_sums(x: np.ndarray) -> tuple[np.float32, np.float32]:
    total = F(0)
    for value in x:
        total = total + F(value)
    mean, squares = total / F(len(x)), F(0)
    for value in x:
        squares = squares + (F(value) - mean) * (F(value) - mean)
    return total, squares


def scalar_layernorm(x: np.ndarray, gamma: Any, beta: Any, eps: float) -> np.ndarray:
    parts = [(*scalar_sums(x[a:b]), b - a) if b > a else (F(0), F(0), 0)
             for a, b in segment_bounds(len(x))]  # fmt: skip

    def join(a: Any, b: Any) -> Any:
        if not a[2] or not b[2]:
            return a if a[2] else b
        delta = b[0] / F(b[2]) - a[0] / F(a[2])
        weight = F(a[2] * b[2]) / F(a[2] + b[2])
        return a[0] + b[0], (a[1] + b[1]) + (delta * delta) * weight, a[2] + b[2]

    p = parts
    whole = join(join(join(p[0], p[1]), join(p[2], p[3])), join(join(p[4], p[5]), join(p[6], p[7])))
    mean, r = whole[0] / F(len(x)), F(1) / np.sqrt(whole[1] / F(len(x)) + F(eps))
    y = [((F(v) - mean) * r) * F(g) + F(b) for v, g, b in zip(x, gamma, beta, strict=True)]
    return np.array(y, np.float32).astype(np.float16)


@pytest.mark.parametrize("columns", [32, 256, 300, 736])
@pytest.mark.parametrize("affine", [True, False])
def test_layernorm(columns: int, affine: bool) -> None:
    rig = Rig()
    rig.rows(2)
    x, gamma, beta = random_fp16(1, 2, columns), random_fp16(2, columns), random_fp16(3, columns)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place(TABLES, 640, gamma)
    rig.place(TABLES, 6400, beta)
    run_vector(rig, LN_SUMS, columns, extra=columns)
    bank = TABLES if affine else NO_BANK
    run_vector(rig, LN_APPLY, columns, extra=columns, scalar=bits(1e-5), a_bank=bank, b_bank=bank,
               a_line=10, b_line=100)  # fmt: skip
    one, zero = np.ones_like(gamma), np.zeros_like(beta)
    g, b = (gamma, beta) if affine else (one, zero)
    wanted = np.array([scalar_layernorm(row, g, b, 1e-5) for row in x])
    assert output(rig, 2, columns).tobytes() == wanted.tobytes()


def test_norm_over_boards_is_the_same() -> None:
    """Two boards sum their own segments; with both halves of the records the result is the same."""
    x = random_fp16(4, 3, 288)
    whole, halves = Rig(), []
    whole.rows(3)
    whole.place_rows(ONCHIP, X, STRIDE, x)
    run_vector(whole, LN_SUMS, 288, extra=288)
    for first, stop in ((0, 128), (128, 288)):  # 9 units: 4 and 5
        rig = Rig()
        rig.rows(3)
        rig.place_rows(ONCHIP, X, STRIDE, x[:, first:stop])
        run_vector(rig, LN_SUMS, stop - first, extra=288, first=first)
        halves.append(rig.read_rows(ONCHIP, Z, STRIDE, (3, 16), np.float32))
    joined = np.concatenate([halves[0][:, :8], halves[1][:, 8:]], axis=1)
    assert joined.tobytes() == whole.read_rows(ONCHIP, Z, STRIDE, (3, 16), np.float32).tobytes()
    assert np.isnan(halves[0][:, 8:]).all()  # the other board's records are not touched


def test_absent_beta_is_a_zero_that_is_added() -> None:
    """0 * -1 is -0, and -0 + 0 is +0."""
    rig = Rig()
    rig.rows(1)
    rig.place(ONCHIP, X, np.full(64, 3, np.float16))
    rig.place(TABLES, 640, np.full(64, -1, np.float16))
    run_vector(rig, LN_SUMS, 64, extra=64)
    run_vector(rig, LN_APPLY, 64, extra=64, scalar=bits(1e-5), a_bank=TABLES, a_line=10)
    assert set(output(rig, 1, 64)[0].view(np.uint16).tolist()) == {0}


def test_merge_is_spelled_as_the_contract_says() -> None:
    """FP16 results seldom show a different spelling; the sums themselves do."""
    generator = np.random.default_rng(5)
    t_a, q_a, t_b, q_b = generator.random((4, 50)).astype(np.float32) * F(9)
    total, squares, columns = norm.merge((t_a, q_a, 64), (t_b, q_b, 96))
    assert columns == 160
    for i in range(50):
        delta = t_b[i] / F(96) - t_a[i] / F(64)
        wanted = (q_a[i] + q_b[i]) + (delta * delta) * (F(6144) / F(160))
        assert (total[i], squares[i]) == (t_a[i] + t_b[i], wanted)


@pytest.mark.parametrize("columns", [64, 300])
def test_rmsnorm(columns: int) -> None:
    rig = Rig()
    rig.rows(2)
    x, w = random_fp16(1, 2, columns), random_fp16(2, columns)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place(TABLES, 640, w)
    run_vector(rig, RMS_SUMS, columns, extra=columns)
    run_vector(rig, RMS_APPLY, columns, extra=columns, scalar=bits(1e-6), a_bank=TABLES, a_line=10)
    for row, got in zip(x, output(rig, 2, columns), strict=True):
        sums = []
        for start, end in segment_bounds(columns):
            total = F(0)
            for value in row[start:end]:
                total = total + F(value) * F(value)
            sums.append(total)
        s = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + (
            (sums[4] + sums[5]) + (sums[6] + sums[7])
        )
        r = F(1) / np.sqrt(s / F(columns) + F(1e-6))
        wanted = np.array([(F(v) * r) * F(g) for v, g in zip(row, w, strict=True)], np.float16)
        assert got.tobytes() == wanted.tobytes()


def test_norm_counts_nonfinite_rows() -> None:
    rig = Rig()
    rig.rows(3)
    x = random_fp16(1, 3, 64)
    x[1, 40] = np.inf
    rig.place_rows(ONCHIP, X, STRIDE, x)
    found = run_vector(rig, LN_SUMS, 64, extra=64)
    assert found.nonfinite_row == 1 and found.nonfinite_count == 2


def test_embed_tokens_positions_and_vectors() -> None:
    rig = Rig()
    rig.rows(3)
    tokens, positions = random_fp16(1, 20, 40), random_fp16(2, 20, 40)
    place_table(rig, 64, tokens)
    place_table(rig, 64 * 200, positions)
    vector = random_fp16(3, 80)
    rig.place(CONTROL, 4096 + 512, vector)
    rig.state.block_offset = 4096
    for i, (token, position) in enumerate([(3, 0), (19, 7), (512, 9)]):
        rig.state.rows[i].token, rig.state.rows[i].position = token, position
    rig.state.rows[2].flags = 0x8
    inputs = np.array([tokens[3], tokens[19], vector[40:]])
    fields = {"a_bank": TABLES, "a_line": 1, "first": 40}
    run_vector(rig, EMBED, 40, **fields)
    assert output(rig, 3, 40).tobytes() == inputs.tobytes()
    run_vector(rig, EMBED, 40, **fields, b_bank=TABLES, b_line=200, extra=2)
    placed = positions[[2, 9, 11]].astype(np.float32)
    wanted = (inputs.astype(np.float32) + placed).astype(np.float16)
    assert output(rig, 3, 40).tobytes() == wanted.tobytes()
    rig.place_rows(ONCHIP, X, STRIDE, inputs)
    run_vector(rig, ADD_POSITION, 40, b_bank=TABLES, b_line=200, extra=2)
    assert output(rig, 3, 40).tobytes() == wanted.tobytes()


def test_rope_in_place() -> None:
    rig = Rig()
    rig.rows(2)
    x, angle = random_fp16(1, 2, 3 * 48), np.random.default_rng(2).random((9, 24))
    table = np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    place_table(rig, 64, table)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.state.rows[0].position, rig.state.rows[1].position = 8, 5
    run_vector(rig, ROPE, 3 * 48, a_bank=TABLES, a_line=1, extra=48)
    got = rig.read_rows(ONCHIP, X, STRIDE, (2, 3 * 48), np.float16)
    for i, position in enumerate((8, 5)):
        for head in range(3):
            for pair in range(24):
                a, b = F(x[i, head * 48 + pair]), F(x[i, head * 48 + 24 + pair])
                cos, sin = table[position, pair], table[position, 24 + pair]
                assert got[i, head * 48 + pair] == np.float16(a * cos - b * sin)
                assert got[i, head * 48 + 24 + pair] == np.float16(b * cos + a * sin)


def test_elementwise() -> None:
    rig = Rig()
    rig.rows(2)
    x, z = random_fp16(1, 2, 90) * np.float16(4), random_fp16(2, 2, 90)
    x[0, :6] = [np.inf, -np.inf, np.nan, -0.0, 65504, 6e-8]
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place_rows(ONCHIP, Z, STRIDE, z)
    x32, z32 = x.astype(np.float32), z.astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = {
            RESIDUAL: x32 + z32,
            RELU: np.where(x32 > 0, x32, np.where(np.isnan(x32), x32, F(0))),
            GELU_TANH: gelu(x32, "tanh"),
            GELU_ERF: gelu(x32, "erf"),
            SWIGLU: (x32 / (F(1) + exp32(-x32))) * z32,
        }
        halves = {op: value.astype(np.float16) for op, value in wanted.items()}
    for op, half in halves.items():
        found = run_vector(rig, op, 90)
        got = output(rig, 2, 90)
        assert np.array_equal(got, half, equal_nan=True), op
        nan = np.isnan(got)
        assert set(got[nan].view(np.uint16).tolist()) <= {0x7E00}
        assert (np.signbit(got) == np.signbit(half))[~nan].all()
        assert found.nonfinite_count == (~np.isfinite(half)).sum()
        assert found.nonfinite_row == 0


def test_relu_and_gelu_at_libm() -> None:
    """The activations are the right functions, not only the same as the model's own."""
    x = np.linspace(-5, 5, 90, dtype=np.float16)
    exact = {
        GELU_ERF: lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2)),
        GELU_TANH: lambda v: 0.5 * v * (1 + math.tanh(0.7978845608 * (v + 0.044715 * v**3))),
        RELU: lambda v: max(v, 0.0),
        SWIGLU: lambda v: v / (1 + math.exp(-v)),
    }
    rig = Rig()
    rig.rows(1)
    rig.place(ONCHIP, X, x)
    rig.place(ONCHIP, Z, np.ones_like(x))
    for op, function in exact.items():
        run_vector(rig, op, 90)
        wanted = np.array([function(float(v)) for v in x])
        assert np.max(np.abs(output(rig, 1, 90)[0] - wanted)) < 2e-3, op


def test_argmax() -> None:
    rig = Rig()
    rig.rows(7, selected=[1, 4, 5, 6])
    x = np.random.default_rng(3).standard_normal((4, 50)).astype(np.float32)
    x[0, [7, 30]] = 9
    x[1, 12] = np.nan
    x[2, :] = -1
    x[2, [3, 4]] = [-0.0, 0.0]
    x[3, 49] = np.inf
    rig.place_rows(CONTROL, X, STRIDE, x)
    fields = {"flags": SELECTED, "y_bank": CONTROL, "y_stride": 8, "first": 1000}
    found = run_vector(rig, ARGMAX, 50, **fields)
    got = rig.read_rows(CONTROL, Y, 8, (4, 2), np.uint32)
    values = got[:, 0].copy().view(np.float32)
    assert got[[0, 2, 3], 1].tolist() == [1007, 1003, 1049]
    assert values[0] == 9 and values[2] == 0 and values[3] == np.inf
    assert got[1, 0] == 0x7FC00000
    assert found.nonfinite_count == 2 and found.nonfinite_row == 4
    found = run_vector(rig, ARGMAX, 0, **fields)
    got = rig.read_rows(CONTROL, Y, 8, (4, 2), np.uint32)
    assert set(got[:, 1].tolist()) == {0xFFFFFFFF} and found.nonfinite_count == 0
    assert set(got[:, 0].tolist()) == {0xFF800000}


def test_unknown_operation_is_refused() -> None:
    rig = Rig(runner=refusing_runner)
    rig.rows(1)
    assert rig.run("vector", op=99, columns=1).status == 15
