"""The CUDA kernels of exact prefill without a card, against the independent implementation. What a
warp does together (mma) is not in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.host_kernels import HostKernels
from tests.oracle.arithmetic import product, segments, tree


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> HostKernels:
    return HostKernels(tmp_path_factory.mktemp("kernels"))


def run(
    kernels: HostKernels, name: str, *arrays: NDArray[Any], columns: int, group: int = 0
) -> NDArray[np.float32]:
    given = [np.ascontiguousarray(array) for array in arrays]
    rows, k = arrays[0].shape
    y = np.full((rows, columns), np.nan, np.float32)
    addresses = [array.ctypes.data for array in (*given, y)]
    tile, threads = ((64, 64), 256) if name == "half_products" else ((16, 32), 128)
    grid = (-(-columns // tile[0]), -(-rows // tile[1]))
    kernels.launch(name, grid, threads, addresses, [rows, k, columns, group])
    return y


@pytest.mark.parametrize(("rows", "k", "columns"), [(1, 32, 1), (5, 70, 33), (67, 288, 70)])
def test_products_of_fp16_are_the_oracles(
    kernels: HostKernels, rows: int, k: int, columns: int
) -> None:
    draw = np.random.default_rng(k)
    x = draw.standard_normal((rows, k)).astype(np.float16)
    w = (draw.standard_normal((k, columns)) / 2000).astype(np.float16)  # some are subnormal
    want = product(x.astype(np.float32), w.astype(np.float32))
    found = run(kernels, "half_products", x, w, columns=columns)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize(("rows", "k", "columns"), [(1, 32, 1), (37, 288, 21)])
def test_products_of_int8_are_exact(kernels: HostKernels, rows: int, k: int, columns: int) -> None:
    draw = np.random.default_rng(k)
    x = draw.integers(-127, 128, (rows, k), np.int8)
    w = draw.integers(-128, 128, (columns, k), np.int8)
    want = (x.astype(np.int64) @ w.T.astype(np.int64)).astype(np.float32)
    assert run(kernels, "byte_products", x, w, columns=columns).tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("rows", "k", "columns", "group"), [(1, 32, 1, 32), (33, 384, 21, 128), (5, 320, 9, 64)]
)
def test_groups_cut_at_segments_are_the_oracles(
    kernels: HostKernels, rows: int, k: int, columns: int, group: int
) -> None:
    draw = np.random.default_rng(k)
    x = draw.integers(-127, 128, (rows, k), np.int8)
    w = draw.integers(-15, 16, (columns, k), np.int8)
    scales = draw.random((k // group, columns)).astype(np.float16)
    sums = []
    for segment in segments(k):
        total = np.zeros((rows, columns), np.float32)
        for number in sorted({at // group for at in segment}):
            inside = [at for at in segment if at // group == number]
            part = x[:, inside].astype(np.int64) @ w[:, inside].T.astype(np.int64)
            total = total + part.astype(np.float32) * scales[number].astype(np.float32)
        sums.append(total)
    want = tree(sums, np.add)
    found = run(kernels, "group_products", x, w, scales, columns=columns, group=group)
    assert found.tobytes() == want.tobytes()
