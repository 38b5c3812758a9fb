"""The simulated vector unit's sums, maxima, norms of heads, rotation and permutation against the
NumPy model, byte for byte: shapes of every kind, edge values, a million random values an
operation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from lora_host import abi
from lora_host.segments import segment_bounds
from tests.rtl.test_fp16_matmul import EDGES, any_bits, memory
from tests.rtl.vector_rig import X, Y, Z, bits, run, same
from tests.rtl_rig import ROOT, build, padded, units_runner
from tests.unit.kernel_rig import TABLES

pytestmark = pytest.mark.rtl

__all__ = ["memory"]
HEADS = (8, 24, 64, 80, 96, 128, 256)


@dataclass
class Case:
    """Operands of one command; `values` of them are computed with."""

    op: int
    x: np.ndarray
    z: np.ndarray | None = None
    places: tuple[Any, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)

    def same(self, units: Any, **fields: Any) -> bool:
        return same(units, self.op, self.x, self.z, self.places, **{**self.fields, **fields})


Draw = Callable[[Generator, tuple[int, int]], np.ndarray]
Maker = Callable[[Generator, Draw, int, int], Case]


def finite(generator: Generator, shape: tuple[int, int]) -> np.ndarray:
    """FP16 of all sizes: exponents as often as each other, so that sums round in every way."""
    sizes = np.exp2(generator.integers(-14, 8, shape))
    return (generator.standard_normal(shape) * sizes).astype(np.float16)


def anything(generator: Generator, shape: tuple[int, int]) -> np.ndarray:
    """Any bits, NaN and infinities too; a third are edge values."""
    found = generator.integers(0, 1 << 16, shape, np.uint16).view(np.float16)
    edges = generator.choice(EDGES.view(np.uint16), shape).view(np.float16)
    return np.where(generator.random(shape) < 0.33, edges, found)


def singles(generator: Generator, draw: Draw, shape: tuple[int, int]) -> np.ndarray:
    return draw(generator, (shape[0], 2 * shape[1])).view(np.float32)


def whole_heads(width: int, head_dim: int) -> int:
    return max(1, width // head_dim) * head_dim


def sums(op: int) -> Maker:
    def make(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
        """One board's segments of a row of `width` columns, or all of them."""
        bounds = segment_bounds(width)
        first, last = sorted(generator.choice(9, 2, replace=False))
        if generator.random() < 0.5:
            first, last = 0, 8
        start, end = bounds[first][0], bounds[last - 1][1]
        if start == end:
            start, end = 0, width
        x = draw(generator, (rows, end - start))
        return Case(op, x, fields={"extra": width, "first": int(start), "z_offset": Z + 8})

    return make


def head_sums(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    head_dim = int(generator.choice(HEADS))
    columns = whole_heads(width, head_dim)
    fields = {"extra": columns + 2 * head_dim, "first": head_dim, "head_dim": head_dim}
    return Case(abi.VEC_HEAD_SUMS, draw(generator, (rows, columns)), fields=fields)


def gamma(generator: Generator, columns: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    fields = {"a_bank": TABLES, "a_line": 10, "scalar": bits(1e-6)}
    if generator.random() < 0.5:
        fields |= {"flags": abi.FLAG_ONE_PLUS, "b_line": bits(2.0**-6)}
    return ((TABLES, 640, finite(generator, (1, columns))),), fields


def rms_heads(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    head_dim = int(generator.choice(HEADS))
    places, fields = gamma(generator, head_dim)
    x = draw(generator, (rows, whole_heads(width, head_dim)))
    return Case(abi.VEC_RMS_HEADS, x, None, places, {**fields, "extra": head_dim})


def rms_row(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    head_dim = int(generator.choice(HEADS))
    columns = whole_heads(width, head_dim)
    places, fields = gamma(generator, columns)
    fields |= {"extra": 3 * columns, "first": columns, "head_dim": head_dim}
    z = np.abs(singles(generator, draw, (rows, 3 * columns // head_dim)))
    if draw is finite:
        z = np.abs(generator.standard_normal(z.shape) * 100).astype(np.float32)
    return Case(abi.VEC_RMS_ROW, draw(generator, (rows, columns)), z, places, fields)


def rope(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    head_dim = int(generator.choice(HEADS))
    angles = generator.random((11, head_dim // 2)) * 6.4
    table = np.zeros((11, padded(4 * head_dim) // 4), np.float32)
    table[:, :head_dim] = np.hstack([np.cos(angles), np.sin(angles)])
    if draw is anything:
        table[:, :head_dim] = singles(generator, draw, (11, head_dim))
    x = draw(generator, (rows, whole_heads(width, head_dim)))
    fields = {"extra": head_dim, "a_bank": TABLES, "a_line": 10}
    return Case(abi.VEC_ROPE, x, None, ((TABLES, 640, table),), fields)


def argmax(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    x = singles(generator, draw, (rows, width))
    if draw is finite:  # with equal ones
        x = generator.integers(-20, 20, (rows, width)).astype(np.float32)
    return Case(abi.VEC_ARGMAX, x, fields={"x_offset": Y + 12, "y_offset": Z, "first": 1000})


def quantize_heads(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    head_dim = int(generator.choice(HEADS))
    x = draw(generator, (rows, whole_heads(width, head_dim)))
    x[0, :head_dim] = 0
    return Case(abi.VEC_QUANTIZE_HEADS, x, fields={"extra": head_dim, "z_offset": Z + 6})


def permute(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    size = int(generator.integers(1, 3))
    x = draw(generator, (rows, width))
    order = generator.permutation(width).astype(np.uint32)
    place = {"a_bank": TABLES, "a_line": 10, "x_offset": X + size, "y_offset": Y + size}
    fields = {**place, "extra": size}
    return Case(abi.VEC_PERMUTE, x, None, ((TABLES, 640, order),), fields)


def row_max(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    fields = {"extra": 4, "first": int(generator.integers(4))}
    return Case(abi.VEC_ROW_MAX, draw(generator, (rows, width)), fields=fields)


def quantize_row(generator: Generator, draw: Draw, rows: int, width: int) -> Case:
    """z: what ROW_MAX gives, of a part of x alone, zero or infinite at times."""
    x, z = draw(generator, (rows, width)), np.zeros((rows, 16), np.float32)
    count = int(generator.integers(1, 9))
    z[:, :count] = np.nan_to_num(np.abs(x[:, :1]).astype(np.float32), nan=0, posinf=np.inf)
    z[:, count - 1] = np.where(generator.random(rows) < 0.8, 300, z[:, count - 1])
    if draw is anything:
        z[0, :], z[-1, 0] = 0, np.inf
    return Case(abi.VEC_QUANTIZE_ROW, x, z, (), {"extra": count})


MAKERS: dict[str, Maker] = {
    "ln_sums": sums(abi.VEC_LN_SUMS),
    "rms_sums": sums(abi.VEC_RMS_SUMS),
    "head_sums": head_sums,
    "rms_heads": rms_heads,
    "rms_row": rms_row,
    "rope": rope,
    "argmax": argmax,
    "quantize_heads": quantize_heads,
    "permute": permute,
    "row_max": row_max,
    "quantize_row": quantize_row,
}


def compare(units: Any, name: str, draw: Draw, seed: int, rows: int, width: int) -> int:
    """How many values were compared."""
    with np.errstate(all="ignore"):
        case = MAKERS[name](np.random.default_rng(seed), draw, rows, width)
        assert case.same(units), f"{name}: seed {seed}, {rows} rows of {width}"
    return case.x.size


@pytest.mark.parametrize("draw", [finite, anything])
@pytest.mark.parametrize("name", MAKERS)
def test_shapes(units: Any, name: str, draw: Draw) -> None:
    """Rows of one column up, short last lines, empty segments, heads of every size."""
    for seed, width in enumerate((1, 7, 31, 33, 64, 96, 250, 257, 512, 1000)):
        compare(units, name, draw, seed, 2 if width > 99 else 3, width)


@pytest.mark.long
@pytest.mark.parametrize("name", MAKERS)
def test_a_million_values(units: Any, name: str) -> None:
    values = 0
    for seed in range(100, 200):
        draw = anything if seed % 8 == 0 else finite
        values += compare(units, name, draw, seed, 16, (4096, 3990, 2048, 1600)[seed % 4])
        if values >= 1_000_000:
            return
    raise AssertionError(f"{values} values")


@pytest.mark.parametrize("name", MAKERS)
def test_selected_rows_and_slow_memory(
    units: Any, name: str, memory: Callable[[int, int], None]
) -> None:
    memory(40, 90)
    case = MAKERS[name](np.random.default_rng(5), finite, 3, 100)
    assert case.same(units, selected=(1, 4, 6))


def test_no_columns(units: Any) -> None:
    """Of a board without vocabulary, or without columns of the row."""
    assert same(units, abi.VEC_ARGMAX, np.zeros((2, 0), np.float32), x_offset=Y, y_offset=Z)
    fields = {"extra": 3, "first": 2}
    assert same(units, abi.VEC_ROW_MAX, np.zeros((2, 0), np.float16), **fields)


def test_equal_maxima_and_nan(units: Any) -> None:
    rows = np.zeros((6, 70), np.float32)
    rows[0, [40, 60]] = 3
    rows[1] = -np.inf
    rows[2, [35, 69]] = np.nan
    rows[2, 3] = np.inf
    rows[3, ::2] = -0.0
    rows[4], rows[5, 69] = -5, 1e-45
    assert same(units, abi.VEC_ARGMAX, rows, x_offset=Y, y_offset=Z)


def test_an_index_beyond_the_row_is_refused(units: Any) -> None:
    order = np.arange(64, dtype=np.uint32)
    order[50] = 64
    places, fields = ((TABLES, 640, order),), {"extra": 2, "a_bank": TABLES, "a_line": 10}
    x = any_bits(1, 1, 64)
    _, found = run(units_runner(units), abi.VEC_PERMUTE, x, None, places, **fields)
    assert found.status == abi.ERR_SIZE
    order[50] = 0
    assert same(units, abi.VEC_PERMUTE, x, None, places, **fields)


MISTAKES = {  # each in one operation's path
    "rms_sums": ("vfu/vfu_fold.sv", "values[{element[4:0], 5'd0}+:32]",
                 "values[{element[4:0] ^ 5'(kind == FOLD_ADD), 5'd0}+:32]"),
    "argmax": ("vfu/vfu_fold.sv", "float_less(folded[0], value)", "!float_less(value, folded[0])"),
    "quantize_heads": ("vfu/vector_lane.sv", "OP_TO_HALF: other = half_to_float(half)",
                       "OP_TO_HALF: other = a_1"),
    "head_sums": ("vfu/vfu_program.sv", "7'd112, 7'd113", "7'd112, 7'd114"),
    "rope": ("vfu/vfu_addresses.sv", "(in_group + half) << 2", "in_group << 2"),
}  # fmt: skip


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A unit with all of these mistakes."""
    folder = tmp_path_factory.mktemp("wrong")
    sources = shutil.copytree(ROOT / "overlays" / "rtl", folder / "rtl")
    for path, right, mistaken in MISTAKES.values():
        text = (sources / path).read_text()
        assert right in text
        (sources / path).write_text(text.replace(right, mistaken))
    return build(folder / "build", sources, unit="vfu")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(wrong: Any, name: str) -> None:
    generator = np.random.default_rng(3)
    assert not MAKERS[name](generator, finite, 3, 512).same(wrong)
    assert MAKERS["row_max"](generator, finite, 2, 300).same(wrong)
