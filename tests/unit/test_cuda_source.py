"""The CUDA kernels of exact prefill without a card, against the independent implementation: as for
cards with tensor cores, and as for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.host_kernels import HostLauncher
from tests.oracle.arithmetic import (
    exp,
    product,
    rms_norm,
    segments,
    silu,
    squares,
    store,
    tree,
)
from tests.oracle.integer import quantize, quantize_rows, through_heads

F32 = NDArray[np.float32]


class Array:
    """An array's address, as a tensor has it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.ascontiguousarray(array)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


class Pointer:
    """An address `offset` bytes within an array."""

    def __init__(self, of: Array, offset: int) -> None:
        self._of, self._offset = of, offset

    def data_ptr(self) -> int:
        return self._of.data_ptr() + self._offset


def result(*shape: int, kind: type = np.float32) -> Array:
    """Where a kernel writes; what it leaves is NaN, or another large number."""
    return Array(np.full(shape, np.nan if issubclass(kind, np.floating) else 99, kind))


@pytest.fixture(scope="module", params=[True, False], ids=["tensor cores", "dot products"])
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostLauncher]:
    yield HostLauncher(tmp_path_factory.mktemp("kernels"), request.param)


def joined(
    kernels: HostLauncher, name: str, height: int, operands: list[NDArray[Any]], *sizes: int
) -> F32:
    """The product of a kernel whose blocks have `height` rows; the last of `sizes` are the parts of
    the segments."""
    rows, columns, parts = sizes[0], sizes[2], sizes[-1]
    y, given = result(parts, rows, columns), [Array(one) for one in operands]
    grid = (-(-columns // 128), -(-rows // height), parts)
    kernels.launch(name, grid, 256, *given, y, *sizes)
    if parts == 1:
        return y.array[0]
    found = result(rows, columns)
    join = "join_bytes" if name.startswith("byte") else "join_products"
    size = rows * columns
    kernels.launch(join, (-(-size // 256), 1, 1), 256, y, found, parts, size)
    return found.array


SHAPES = [(1, 32, 1, 1), (5, 70, 33, 8), (37, 320, 150, 2), (131, 288, 70, 4)]
"""Rows, K, columns and parts."""
HEIGHTS = {"": 128, "_32": 32}
"""Rows of a block, by what a kernel's name ends with."""


@pytest.mark.parametrize(("rows", "k", "columns", "parts"), SHAPES)
@pytest.mark.parametrize("kind", HEIGHTS)
def test_products_of_fp16_are_the_oracles(
    kernels: HostLauncher, kind: str, rows: int, k: int, columns: int, parts: int
) -> None:
    draw = np.random.default_rng(k)
    x = draw.standard_normal((rows, k)).astype(np.float16)
    w = (draw.standard_normal((k, columns)) / 2000).astype(np.float16)  # some are subnormal
    want = product(x.astype(np.float32), w.astype(np.float32))
    name, sizes = f"half_products{kind}", (rows, k, columns, parts)
    found = joined(kernels, name, HEIGHTS[kind], [x, w], *sizes)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize(("rows", "k", "columns", "parts"), SHAPES)
@pytest.mark.parametrize("kind", HEIGHTS)
def test_products_of_int8_are_exact(
    kernels: HostLauncher, kind: str, rows: int, k: int, columns: int, parts: int
) -> None:
    k = -(-k // 32) * 32  # whole units
    draw = np.random.default_rng(k)
    x = draw.integers(-127, 128, (rows, k), np.int8)
    w = draw.integers(-128, 128, (columns, k), np.int8)
    want = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float32)
    name, sizes = f"byte_products{kind}", (rows, k, columns, parts)
    found = joined(kernels, name, HEIGHTS[kind], [x, w], *sizes)
    assert found.tobytes() == want.tobytes()


def grouped(x: NDArray[np.int8], w: NDArray[np.int8], scales: F32, group: int) -> F32:
    """6.3, `total`."""
    sums = []
    for segment in segments(x.shape[1]):
        total = np.zeros((len(x), len(w)), np.float32)
        for number in sorted({at // group for at in segment}):
            inside = [at for at in segment if at // group == number]
            part = x[:, inside].astype(np.int64) @ w[:, inside].T.astype(np.int64)
            total = total + part.astype(np.float32) * scales[number]
        sums.append(total)
    found: F32 = tree(sums, np.add)
    return found


@pytest.mark.parametrize(
    ("rows", "k", "columns", "group", "parts"),
    [(1, 32, 1, 32, 1), (33, 384, 21, 128, 2), (5, 320, 9, 64, 8), (140, 1088, 131, 32, 1)],
)
@pytest.mark.parametrize("kind", HEIGHTS)
def test_groups_cut_at_segments_are_the_oracles(
    kernels: HostLauncher, kind: str, rows: int, k: int, columns: int, group: int, parts: int
) -> None:
    draw = np.random.default_rng(k)
    x = draw.integers(-127, 128, (rows, k), np.int8)
    w = draw.integers(-15, 16, (columns, k), np.int8)
    x[0], w[0] = 127, 15  # the largest sums
    scales = draw.random((k // group, columns)).astype(np.float16)
    want = grouped(x, w, scales.astype(np.float32), group)
    name, sizes = f"group_products{kind}", (rows, k, columns, group, parts)
    found = joined(kernels, name, HEIGHTS[kind], [x, w, scales], *sizes)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize(("rows", "k"), [(1, 32), (9, 70), (20, 1003)])
def test_sums_of_squares_are_the_oracles(kernels: HostLauncher, rows: int, k: int) -> None:
    x = np.random.default_rng(k).standard_normal((rows, k)).astype(np.float16)
    found = result(rows)
    kernels.launch("row_squares", (-(-rows // 8), 1, 1), 64, Array(x), found, rows, k)
    assert found.array.tobytes() == squares(x.astype(np.float32)).tobytes()


def test_gated_silu_is_the_oracles(kernels: HostLauncher) -> None:
    x = (np.random.default_rng(1).standard_normal((3, 2 * 300)) * 40).astype(np.float16)
    x[0, :2], x[1, 300:302] = (-0.0, 65504), (6e-8, -65504)
    found = result(3, 300, kind=np.float16)
    kernels.launch("gated_silu", (2, 3, 1), 256, Array(x), found, 3, 300)
    wide = x.astype(np.float32)
    with np.errstate(over="ignore"):
        want = store(silu(wide[:, :300]) * wide[:, 300:])
    assert found.array.tobytes() == want.astype(np.float16).tobytes()


@pytest.mark.parametrize(("rows", "k"), [(1, 32), (9, 70), (3, 1003)])
def test_rms_norm_is_the_oracles(kernels: HostLauncher, rows: int, k: int) -> None:
    draw = np.random.default_rng(k)
    x, gamma = draw.standard_normal((rows, k)).astype(np.float16), draw.random(k, np.float32)
    found = result(rows, k, kind=np.float16)
    given = (Array(x), Array(gamma), 1e-5, 2.0**-6, found, k)
    kernels.launch("row_rms_norm", (rows, 1, 1), 128, *given)
    want = rms_norm(x.astype(np.float32), gamma, 1e-5, 2.0**-6)
    assert found.array.tobytes() == want.astype(np.float16).tobytes()


def test_quantized_rows_are_the_oracles(kernels: HostLauncher) -> None:
    """Of columns within wider rows; by one scale, and each row by its own."""
    wide = (np.random.default_rng(2).standard_normal((3, 1500)) * 50).astype(np.float16)
    wide[1], wide[2, 300] = 0, -65504
    x, columns = Array(wide), 1300
    cut, found = Pointer(x, 2 * 200), result(3, columns, kind=np.int8)
    scale = np.float32(0.31)
    sizes = (columns, 1500)
    kernels.launch("quantize", (2, 3, 1), 256, cut, None, float(1 / scale), found, *sizes)
    part = wide[:, 200:].astype(np.float32)
    assert np.array_equal(found.array, quantize(part, scale))
    want, scales = quantize_rows(part)
    with np.errstate(divide="ignore"):
        factors = np.where(scales > 0, np.float32(127) / np.abs(part).max(axis=1)[:, None], 0)
    given = Array(factors.astype(np.float32))
    kernels.launch("quantize", (2, 3, 1), 256, cut, given, 1.0, found, *sizes)
    assert np.array_equal(found.array, want)


def test_int8_heads_are_the_oracles(kernels: HostLauncher) -> None:
    rows, heads, size = 5, 3, 40
    x = np.random.default_rng(3).standard_normal((rows, heads, size)).astype(np.float16)
    x[1, 1] = 0
    eight, scales = result(heads, rows, size, kind=np.int8), result(heads, rows, kind=np.float16)
    back = result(heads, rows, size, kind=np.float16)
    given = (Array(x), eight, scales, back, size, heads * size)
    kernels.launch("quantize_heads", (rows, heads, 1), 32, *given)
    want = np.stack([through_heads(head) for head in x.transpose(1, 0, 2).astype(np.float32)])
    assert np.array_equal(back.array, want.astype(np.float16))  # of -0 and +0 it has either
    read = eight.array.astype(np.float32) * scales.array[..., None].astype(np.float32)
    assert np.array_equal(store(read), want)


@pytest.mark.parametrize(("rows", "first", "window"), [(3, 0, 0), (2, 4130, 0), (40, 90, 33)])
def test_weights_of_attention_are_the_oracles(
    kernels: HostLauncher, rows: int, first: int, window: int
) -> None:
    """Beyond 4096 positions there are two chunks."""
    heads, positions = 2, -(-(first + rows) // 32) * 32
    scores = np.random.default_rng(first).standard_normal((heads, rows, positions), np.float32) * 9
    given = Array(scores)
    scale = np.float32(0.3)
    e, sums = result(heads, rows, positions, kind=np.float16), result(heads, rows)
    e8, sums8 = result(heads, rows, positions, kind=np.int8), result(heads, rows)
    sizes = (rows, positions, first, window, float(scale))
    kernels.launch("attention_weights", (rows, heads, 1), 256, given, e, sums, *sizes)
    kernels.launch("attention_weights_int8", (rows, heads, 1), 256, given, e8, sums8, *sizes)
    for head in range(heads):
        for row in range(rows):
            seen = slice(max(0, first + row + 1 - window) if window else 0, first + row + 1)
            s = scores[head, row, seen] * scale
            weights, want, want8 = exp(s - s.max()), *(np.zeros(positions) for _ in range(2))
            want[seen], want8[seen] = store(weights), np.rint(weights * np.float32(127))
            assert e.array[head, row].tobytes() == want.astype(np.float16).tobytes()
            assert e8.array[head, row].tobytes() == want8.astype(np.int8).tobytes()
            assert sums.array[head, row] == sum_of_tiles(want.astype(np.float32))
            assert sums8.array[head, row] == want8.sum()


def sum_of_tiles(e: F32) -> np.float32:
    """3.8, E."""
    total = np.float32(0)
    for chunk in range(0, len(e), 4096):
        of_chunk = np.float32(0)
        for tile in range(chunk, min(chunk + 4096, len(e)), 32):
            of_tile = np.float32(0)
            for value in e[tile : tile + 32]:
                of_tile = of_tile + value
            of_chunk = of_chunk + of_tile
        total = total + of_chunk
    return total
