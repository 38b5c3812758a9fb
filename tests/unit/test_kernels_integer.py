"""The integer paths of the NumPy model on bytes placed one by one as abi.h says, against the
oracle; values at the edges of every rule."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import abi
from tests.oracle.blocks import pack_int4, pack_int8
from tests.oracle.integer import Int4Matrix, int4_product, quantize
from tests.unit.kernel_rig import ONCHIP, TABLES, WEIGHT_BANKS, Rig

X, Y, Z = 0, 1 << 14, 1 << 15
SIZES = {32: 2368, 64: 2240, 128: 2176}


def place_blocks(rig: Rig, blocks: NDArray[np.uint8], first: int, merge: int, line: int) -> None:
    """Blocks [count, bytes] over the weight banks."""
    bank_first, banks = WEIGHT_BANKS
    for j, block in enumerate(blocks):
        request = first + j // merge
        place = request // banks * merge + j % merge
        rig.place(bank_first + request % banks, line * 64 + place * block.size, block)


def int8_blocks(w: NDArray[np.int64]) -> NDArray[np.uint8]:
    """[K, N] byte by byte; what pads a block is 0x55, so that reading it shows."""
    k_blocks, tiles = -(-w.shape[0] // 128), -(-w.shape[1] // 32)
    blocks = np.full((tiles * k_blocks, 4096), 0x55, np.uint8)
    for (k, n), value in np.ndenumerate(w):
        j = n // 32 * k_blocks + k // 128
        blocks[j, k % 128 // 4 * 128 + n % 32 * 4 + k % 4] = value & 0xFF
    return blocks


def int4_blocks(w: Int4Matrix) -> NDArray[np.uint8]:
    """Values, scales and zero points byte by byte."""
    (k_count, n_count), g = w.values.shape, w.group
    k_blocks, tiles = -(-k_count // 128), -(-n_count // 32)
    blocks = np.zeros((tiles * k_blocks, SIZES[g]), np.uint8)
    for (k, n), value in np.ndenumerate(w.values):
        j, inside = n // 32 * k_blocks + k // 128, k % 128
        shift = 4 if inside % 8 >= 4 else 0
        blocks[j, inside // 8 * 128 + n % 32 * 4 + inside % 4] |= value << shift
    for (place, n), scale in np.ndenumerate(w.scales):
        j, inside = n // 32 * k_blocks + place * g // 128, place * g % 128 // g
        at = 2048 + (inside * 32 + n % 32) * 2
        blocks[j, at : at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        at = 2048 + 128 // g * 64 + inside * 16 + n % 32 // 2
        blocks[j, at] |= int(w.zeros[place, n]) << (4 if n % 2 else 0)
    return blocks


def random_int4(rng: np.random.Generator, k: int, n: int, group: int) -> Int4Matrix:
    """Scales of wide exponents, so that the order of sums is seen."""
    shape = k // group, n
    return Int4Matrix(
        rng.integers(0, 16, (k, n)),
        np.exp2(rng.uniform(-9, 9, shape)).astype(np.float16),
        rng.integers(0, 16, shape),
        group,
        np.float32(0.037),
        None,
    )


@pytest.mark.parametrize("k", [64, 192, 416])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_blocks_are_packed_as_the_abi_says(k: int, group: int) -> None:
    rng = np.random.default_rng(k + group)
    w = rng.integers(-127, 128, (k, 70))
    whole = np.where(int8_blocks(w) == 0x55, 0, int8_blocks(w))
    packed = pack_int8(np.ascontiguousarray(w.T.astype(np.int8)))
    assert np.array_equal(np.where(packed == 0x55, 0, packed), whole)
    k -= k % group
    if not k:
        return
    four = random_int4(rng, k, 70, group)
    packed = pack_int4(
        np.ascontiguousarray(four.values.T.astype(np.uint8)),
        np.ascontiguousarray(four.scales.T),
        np.ascontiguousarray(four.zeros.T.astype(np.uint8)),
        group,
        SIZES[group],
    )
    assert np.array_equal(packed, int4_blocks(four))


def multiply(
    rig: Rig, x: NDArray[np.int64], n: int, weight_type: int, scale: np.ndarray, merge: int
) -> NDArray[np.float32]:
    k = x.shape[1]
    rig.rows(len(x))
    rig.place_rows(ONCHIP, X, 1024, x.astype(np.int8))
    rig.place(TABLES, 128, scale.astype(np.float32))
    result = rig.run(
        "matrix", weight_type=weight_type, k=k, n=n, x_bank=ONCHIP, x_offset=X, x_stride=1024,
        y_bank=ONCHIP, y_offset=Y, y_stride=1024, y_type=abi.FP32, bias_bank=TABLES, bias_line=2,
        bank_first=WEIGHT_BANKS[0], bank_count=WEIGHT_BANKS[1], merge=merge, first=5,
        weight_line=3, flags=abi.FLAG_NO_BIAS,
    )  # fmt: skip
    assert result.status == 0 and result.nonfinite_count == 0
    return rig.read_rows(ONCHIP, Y, 1024, (len(x), n), np.float32)


@pytest.mark.parametrize("merge", [1, 4])
@pytest.mark.parametrize("k", [24, 130, 416])
def test_int8_products_are_exact(k: int, merge: int) -> None:
    rng, rig = np.random.default_rng(k), Rig()
    x, w = rng.integers(-127, 128, (3, k)), rng.integers(-127, 128, (k, 70))
    x[0], w[:, 0] = 127, -127  # the largest sum
    scale = rng.uniform(1e-4, 1e-2, 70).astype(np.float32)
    place_blocks(rig, int8_blocks(w), 5, merge, 3)
    got = multiply(rig, x, 70, abi.WEIGHT_INT8, scale, merge)
    assert np.array_equal(got, (x @ w).astype(np.float32) * scale)


@pytest.mark.parametrize("group", [32, 64, 128])
def test_groups_are_cut_at_segments_and_joined_as_a_tree(group: int) -> None:
    """K of 11 units: segments of one and two units, which cut groups of 64 and 128."""
    k = {32: 352, 64: 448, 128: 640}[group]
    rng, rig = np.random.default_rng(group), Rig()
    w = random_int4(rng, k, 70, group)
    x = rng.integers(-127, 128, (3, k))
    place_blocks(rig, int4_blocks(w), 5, 1, 3)
    kind = abi.WEIGHT_W4A8 | (group.bit_length() - 1) << abi.WEIGHT_GROUP_SHIFT
    got = multiply(rig, x, 70, kind, np.full(70, w.x_scale), 1)
    want = int4_product((x * np.float64(w.x_scale)).astype(np.float32), w)
    assert got.tobytes() == want.tobytes()
    groups = np.arange(k) // group
    dense = (w.values - w.zeros[groups]) * w.scales[groups].astype(np.float64)
    exact = (x @ dense) * np.float64(w.x_scale)
    assert np.allclose(got, exact, rtol=1e-3, atol=np.abs(exact).max() * 1e-5)
    at_once = (x @ dense).astype(np.float32) * w.x_scale
    assert (got != at_once).mean() > 0.1  # rounding shows, so the order is tested


VALUES = [0.0, -0.0, 1.5, 2.5, -2.5, 126.4, 126.6, 400.0, -400.0, 65504.0, np.inf, -np.inf, np.nan]


def test_quantize_rounds_half_to_even_saturates_and_counts_nan() -> None:
    rig, x = Rig(), np.array([VALUES, VALUES[::-1]], np.float16)
    rig.rows(2)
    rig.place_rows(ONCHIP, X, 64, x)
    scalar = int(np.float32(1).view(np.uint32))
    result = rig.run(
        "vector", op=abi.VEC_QUANTIZE, columns=13, x_offset=X, x_stride=64, y_bank=ONCHIP,
        y_offset=Y, y_stride=64, scalar=scalar,
    )  # fmt: skip
    got = rig.read_rows(ONCHIP, Y, 64, (2, 13), np.int8)
    assert list(got[0]) == [0, 0, 2, 2, -2, 126, 127, 127, -127, 127, 127, -127, 0]
    assert np.array_equal(got[1], got[0][::-1])
    assert result.nonfinite_count == 2 and result.nonfinite_row == 0
    finite = x[0, :10].astype(np.float32)
    assert np.array_equal(got[0, :10], quantize(finite, np.float32(1)))


def test_heads_have_a_scale_each() -> None:
    """A head of zeros, one of subnormals, one with NaN, one with infinity."""
    rig = Rig()
    rng = np.random.default_rng(1)
    x = np.zeros((1, 5, 16), np.float16)
    x[0, 0] = rng.standard_normal(16)
    x[0, 2] = 3e-8 * 2  # the smallest FP16
    x[0, 3] = np.arange(16)
    x[0, 3, 4] = np.nan
    x[0, 4] = 1
    x[0, 4, 0] = np.inf
    rig.rows(1)
    rig.place_rows(ONCHIP, X, 256, x.reshape(1, -1))
    result = rig.run(
        "vector", op=abi.VEC_QUANTIZE_HEADS, columns=80, extra=16, x_offset=X, x_stride=256,
        y_bank=ONCHIP, y_offset=Y, y_stride=128, z_offset=Z, z_stride=64,
    )  # fmt: skip
    y = rig.read_rows(ONCHIP, Y, 128, (1, 80), np.int8).reshape(5, 16)
    z = rig.read_rows(ONCHIP, Z, 64, (1, 5), np.float16)[0]
    assert np.abs(y[0]).max() == 127 and z[0] == np.float16(np.abs(x[0, 0]).max() / 127)
    assert not y[1].any() and z[1] == 0
    assert not y[2].any() and z[2] == 0  # amax/127 is below FP16
    assert y[3, 15] == 127 and y[3, 4] == 0
    assert np.isinf(z[4]) and not y[4].any()
    assert result.nonfinite_count == 2  # the NaN, and infinity times 0


def test_permute_moves_bytes_and_words() -> None:
    rig, rng = Rig(), np.random.default_rng(2)
    order = rng.permutation(50).astype(np.uint32)
    rig.rows(3)
    rig.place(TABLES, 128, order)
    for size, kind in ((1, np.uint8), (2, np.uint16)):
        x = rng.integers(0, 255, (3, 50)).astype(kind)
        rig.place_rows(ONCHIP, X, 128, x)
        rig.run(
            "vector", op=abi.VEC_PERMUTE, columns=50, extra=size, a_bank=TABLES, a_line=2,
            x_offset=X, x_stride=128, y_bank=ONCHIP, y_offset=Y, y_stride=128,
        )  # fmt: skip
        assert np.array_equal(rig.read_rows(ONCHIP, Y, 128, (3, 50), kind), x[:, order])
