"""The simulated vector unit against the NumPy model, byte for byte: unary operations on every FP16
value, the others on random bits, edge values against each other, and rows of every length."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from tests.rtl.test_fp16_matmul import EDGES, any_bits, finite_bits, memory, normal
from tests.rtl.vector_rig import X, Y, Z, bits, run, same
from tests.rtl_rig import ROOT, build, first_then_long, mistaken, padded, units_runner
from tests.unit.kernel_rig import ONCHIP, TABLES

pytestmark = pytest.mark.rtl

__all__ = ["memory"]
EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(2, -1)
FLOATS = np.array(
    [0, -0.0, 1e-45, -1e-45, 1e-38, 0.5, 0.625, 0.6249999, 1, -1, 1.5, 2.5, 43.4, 44.35, 44.4, 88.7,
     127, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32,
)  # fmt: skip


UNARY = {"relu": abi.VEC_RELU, "gelu_tanh": abi.VEC_GELU_TANH, "gelu_erf": abi.VEC_GELU_ERF}
BINARY = {
    "residual": abi.VEC_RESIDUAL,
    "residual_scaled": abi.VEC_RESIDUAL_SCALED,
    "swiglu": abi.VEC_SWIGLU,
    "geglu": abi.VEC_GEGLU,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_on_every_value(units: Any, name: str) -> None:
    assert same(units, UNARY[name], EVERY)


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations(units: Any, name: str) -> None:
    """Every value once as x, edges against edges, random bits."""
    op = BINARY[name]
    factors = [0, 0, 0] if name == "swiglu" else [bits(0.22), bits(-1), bits(1)]  # one of its own
    assert same(units, op, EVERY, any_bits(1, *EVERY.shape), scalar=factors[0])
    x, z = np.meshgrid(EDGES, EDGES)
    assert same(units, op, x.copy(), z.copy(), scalar=factors[1])
    ones = np.ones((1, 8000), np.float16)
    assert same(units, op, finite_bits(2, 1, 8000), ones, scalar=factors[2])


def test_silu_alone_on_every_value(units: Any) -> None:
    assert same(units, abi.VEC_SWIGLU, EVERY, np.ones_like(EVERY))


@pytest.mark.parametrize("inverse", [1.0, 12.5, 0.0, 1e-3, 3e38, np.inf, np.nan, -7.0])
def test_quantizing_every_value(units: Any, inverse: float) -> None:
    rows = EVERY if inverse == 12.5 else EVERY[:, ::16].copy()
    assert same(units, abi.VEC_QUANTIZE, rows, scalar=bits(inverse))


@pytest.mark.parametrize("op", [abi.VEC_SCALE, abi.VEC_SOFTCAP])
@pytest.mark.parametrize("factor", [30.0, 0.1, 1e-40])
def test_rows_of_fp32(units: Any, op: int, factor: float) -> None:
    generator = np.random.default_rng(4)
    any_float = generator.integers(0, 1 << 32, (1, 6000), np.uint32).view(np.float32)
    moderate = (generator.standard_normal((1, 6000)) * factor).astype(np.float32)
    assert same(units, op, any_float, scalar=bits(factor))
    assert same(units, op, moderate, scalar=bits(factor))
    with np.errstate(over="ignore"):
        edges = FLOATS[None, :] * np.float32(factor)
    assert same(units, op, edges, scalar=bits(factor))


def sums(seed: int, rows: int, d: int, pairs: bool) -> np.ndarray:
    """Records as LN_SUMS or RMS_SUMS write them, of any size; those of empty segments are NaN."""
    generator = np.random.default_rng(seed)
    shape = (rows, 8, 2) if pairs else (rows, 8)
    found = (generator.standard_normal(shape) * np.exp2(generator.integers(-9, 9, shape))).astype(
        np.float32
    )
    if pairs:
        found[..., 1] = np.abs(found[..., 1])
    else:
        found = np.abs(found)
    blocks = -(-d // 32)
    for s in range(8):
        if s * blocks // 8 == (s + 1) * blocks // 8:
            found[:, s] = np.nan
    return found.reshape(rows, -1)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("columns", [1, 31, 33, 64, 96, 160, 250, 257, 1000])
def test_norms(units: Any, pairs: bool, columns: int) -> None:
    x = any_bits(columns, 3, columns) if columns == 257 else normal(columns, 3, columns)
    op = abi.VEC_LN_APPLY if pairs else abi.VEC_RMS_APPLY
    places = ((TABLES, 640, normal(5, columns)), (TABLES, 6400, normal(6, columns)))
    tables = {"a_bank": TABLES, "a_line": 10, "b_bank": TABLES, "b_line": 100} if pairs else {
        "a_bank": TABLES, "a_line": 10}  # fmt: skip
    for fields in (tables, {}):
        z = sums(columns, 3, columns, pairs)
        common = {"extra": columns, "scalar": bits(1e-5), **fields}
        assert same(units, op, x, z, places, **common)
    if not pairs:
        for numerator in (1.0, 2.0**-6):
            common = {**common, "flags": abi.FLAG_ONE_PLUS, "b_line": bits(numerator), **tables}
            assert same(units, op, x, z, places, **common)


def test_norms_of_many_sums(units: Any) -> None:
    """Divisions and roots of every kind of value."""
    for pairs in (True, False):
        op, generator = (abi.VEC_LN_APPLY if pairs else abi.VEC_RMS_APPLY), np.random.default_rng(3)
        width = 16 if pairs else 8
        for kind in range(2):
            z = generator.integers(0, 1 << 32, (64, width), np.uint32).view(np.float32)
            z = z if kind else np.abs(sums(9, 64, 999, pairs) * np.float32(1e-4))
            assert same(units, op, normal(4, 64, 32), z, extra=999, scalar=bits(1e-12))


@pytest.mark.parametrize("columns", [5, 32, 70, 515])
def test_embeddings(units: Any, columns: int) -> None:
    size = padded(2 * columns)
    table = np.zeros((12, size // 2), np.float16)
    table[:, :columns] = any_bits(columns, 12, columns)
    places = ((TABLES, 640, table), (TABLES, 1 << 16, table[::-1].copy()))
    tokens, positions = {"a_bank": TABLES, "a_line": 10}, {"b_bank": TABLES, "b_line": 1 << 10}
    x = finite_bits(2, 3, columns)
    for fields in (tokens, {**tokens, **positions}):
        assert same(units, abi.VEC_EMBED, x, None, places, **fields)
        assert same(units, abi.VEC_EMBED_SCALED, x, None, places, scalar=bits(0.37), **fields)
    assert same(units, abi.VEC_ADD_POSITION, x, None, places, extra=1, **positions)
    assert same(units, abi.VEC_EMBED, x, None, places, (0, 2, 4), **tokens)
    assert same(units, abi.VEC_EMBED, x, None, places, vectors=True, **tokens, **positions)


@pytest.mark.parametrize("columns", [1, 15, 17, 31, 32, 33, 63, 64, 65, 100])
def test_lengths_and_selected_rows(units: Any, columns: int) -> None:
    x, z = normal(1, 3, columns), normal(2, 3, columns)
    x[1, -1] = np.nan
    assert same(units, abi.VEC_RESIDUAL, x, z, (), (2, 5, 8))
    assert same(units, abi.VEC_QUANTIZE, x, None, (), (1, 2, 3), scalar=bits(9))
    assert same(units, abi.VEC_SCALE, x.astype(np.float32), None, (), (0, 1, 3), scalar=bits(9))


def test_in_place_and_slow_memory(units: Any, memory: Callable[[int, int], None]) -> None:
    x, z = normal(1, 2, 200), normal(2, 2, 200)
    stride = padded(800) + 64
    for latency, busy in ((1, 0), (3, 0), (60, 100)):
        memory(latency, busy)
        place = {"y_bank": ONCHIP, "y_offset": X, "y_stride": stride}
        assert same(units, abi.VEC_RESIDUAL, x, z, **place)
        assert same(units, abi.VEC_SWIGLU, x, z)


def test_what_it_cannot_do_is_native(units: Any) -> None:
    """Rows over other rows, and commands that the kernels refuse."""
    before = rtl.simulated_work(units)
    over = {"y_bank": ONCHIP, "y_offset": X + 2}
    assert run(units_runner(units), abi.VEC_RELU, normal(1, 2, 64), **over)[1].status == 0
    assert run(units_runner(units), abi.VEC_RELU, normal(1, 2, 64), x_offset=X + 1)[1].status
    after = rtl.simulated_work(units)
    assert (after.vector - before.vector, after.vectors) == (2, before.vectors)


@pytest.mark.parametrize("at", [2, 30, 62])
def test_rows_from_any_element_on(units: Any, at: int) -> None:
    for op in (abi.VEC_RESIDUAL, abi.VEC_QUANTIZE):
        place = {"x_offset": X + at, "z_offset": Z + 6, "y_offset": Y + at}
        assert same(units, op, normal(1, 2, 90), normal(2, 2, 90), scalar=bits(9), **place)
    assert same(units, abi.VEC_SCALE, FLOATS[None, :], None, scalar=bits(9), y_offset=Y + 2 * at)


def test_the_programs_are_those_of_the_tool() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "vfu_program.py", "--check"])
    assert done.returncode == 0


MISTAKES = {
    "ties away from zero in FP16": (
        "fp/float_types.sv", "shifted[25] && (shifted[26] || shifted[24:0] != 25'd0)", "shifted[25]"
    ),
    "a quotient is cut": ("fp/float_divide.sv", "shifted[28] && (", "shifted[28] && 1'b0 && ("),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    path, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    units = build(tmp_path / "build", sources, unit="vfu")
    x, z = normal(1, 1, 640), normal(2, 1, 640)
    floats = np.linspace(-60, 60, 320, dtype=np.float32)[None, :]
    found = [
        same(units, abi.VEC_RESIDUAL, x, z),
        same(units, abi.VEC_SOFTCAP, floats, scalar=bits(30)),
        same(units, abi.VEC_QUANTIZE, EVERY[:, ::64].copy(), scalar=bits(0.5)),
    ]
    assert not all(found)
