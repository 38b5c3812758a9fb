"""The oracle's functions against the product's, bit for bit over every FP16 value, and the order of
its sums against loops over scalars."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import numerics
from tests.oracle import arithmetic

F32 = NDArray[np.float32]
EVERY_FP16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (arithmetic.exp, numerics.exp32),
        (arithmetic.silu, numerics.silu),
        (lambda x: arithmetic.gelu(x, "tanh"), lambda x: numerics.gelu(x, "tanh")),
        (lambda x: arithmetic.gelu(x, "erf"), lambda x: numerics.gelu(x, "erf")),
        (lambda x: arithmetic.activate(x, "relu"), numerics.relu),
    ],
    ids=["exp", "silu", "gelu_tanh", "gelu_erf", "relu"],
)
def test_functions_agree_bit_for_bit(
    ours: Callable[[F32], F32], theirs: Callable[[F32], F32]
) -> None:
    spread = np.linspace(-95, 95, 40_001, dtype=np.float32)
    for values in (EVERY_FP16, arithmetic.store(spread)):
        found, expected = ours(values), theirs(values)
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(found), nan)
        assert np.array_equal(found[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def test_exp_is_exp() -> None:
    x = np.linspace(-80, 80, 10_001, dtype=np.float32)
    assert np.allclose(arithmetic.exp(x), np.exp(x.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("columns", [1, 16, 32, 33, 48, 144, 192, 255, 256, 257, 700])
def test_segments_cover_the_columns_once(columns: int) -> None:
    parts = arithmetic.segments(columns)
    assert len(parts) == 8 and [k for part in parts for k in part] == list(range(columns))
    units = -(-columns // 32)
    for index, part in enumerate(parts):
        owned = range(index * units // 8, (index + 1) * units // 8)
        assert {k // 32 for k in part} == set(owned)


def test_a_product_is_eight_sums_and_a_tree() -> None:
    draw = np.random.default_rng(5)
    x, w = (
        draw.normal(size=shape).astype(np.float16).astype(np.float32)
        for shape in ((1, 300), (300, 1))
    )
    sums = []
    for part in arithmetic.segments(300):
        total = np.float32(0)
        for k in part:
            total = np.float32(total + np.float32(x[0, k] * w[k, 0]))
        sums.append(total)
    a, b, c, d, e, f, g, h = sums
    assert arithmetic.product(x, w)[0, 0] == ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert arithmetic.product(x, w)[0, 0] != np.float32(sum(sums[1:], start=sums[0]))


def test_norms_are_norms() -> None:
    draw = np.random.default_rng(6)
    x = arithmetic.store((draw.normal(size=(5, 144)) * 3 + 7).astype(np.float32))
    gamma, beta = (draw.normal(size=144).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5) * gamma + beta
    assert np.allclose(arithmetic.layer_norm(x, gamma, beta, 1e-5), expected, rtol=1e-3, atol=1e-3)
    root = np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-6)
    assert np.allclose(arithmetic.rms_norm(x, gamma, 1e-6), wide / root * gamma, rtol=1e-3)


def test_attention_sees_no_later_position() -> None:
    draw = np.random.default_rng(7)
    q, k, v = (arithmetic.store(draw.normal(size=(70, 24)).astype(np.float32)) for _ in range(3))
    scale = np.float32(0.2)
    whole = arithmetic.attend(q, k, v, scale)
    for count in (1, 32, 33, 64, 70):
        part = arithmetic.attend(q[:count], k[:count], v[:count], scale)
        assert np.array_equal(part, whole[:count])
    scores = q.astype(np.float64) @ k.T * float(scale)
    weights = np.exp(np.where(np.tri(70), scores, -np.inf))
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    assert np.allclose(whole, expected, atol=2e-3)
