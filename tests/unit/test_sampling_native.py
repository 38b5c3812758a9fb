"""Weights, sums and the largest logits of the C library, beside NumPy, in every variant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lora_host import native, numerics
from lora_host.logits import draw_token, draw_tokens, exp_total, token_weights, top_tokens
from lora_sdk.sampling import Sampler, SamplingParams

LIB = native.lib()


@pytest.fixture(params=["plain", "avx2", "avx512"], autouse=True)
def variant(request: pytest.FixtureRequest) -> Iterator[None]:
    if LIB.lora_native_force(request.param.encode()):
        pytest.skip(f"{request.param}: not on this machine")
    yield
    LIB.lora_native_force(native.ffi().NULL)


def values_of(size: int, spread: float, kind: str) -> np.ndarray:
    generator = np.random.default_rng(size)
    values = (generator.standard_normal(size) * spread).astype(np.float32)
    if kind == "ties":
        values = np.round(values)
    if kind == "forbidden":
        values[generator.random(size) < 0.3] = -np.inf
        values[size // 2] = 1.0
    if kind == "ascending":
        values.sort()
    return values


@pytest.mark.parametrize("kind", ["plain", "ties", "forbidden", "ascending"])
@pytest.mark.parametrize("size, spread", [(1, 1.0), (17, 90.0), (1023, 0.2), (49_153, 4.0)])
def test_weights_sums_and_order_equal_numpys(size: int, spread: float, kind: str) -> None:
    values = values_of(size, spread, kind)
    for temperature in (1.0, 0.7, 1e6):
        scaled = (values - values.max()) / np.float32(temperature)
        wanted = numerics.exp32(scaled).astype(np.float64)
        order = np.argsort(-scaled, kind="stable")
        for top_k, top_p, min_p in ((0, 1.0, 0.0), (size // 3, 1.0, 0.0), (40, 0.8, 0.01)):
            kept = wanted.copy()
            if top_k:
                kept[order[top_k:]] = 0.0
            ranked = np.argsort(-kept, kind="stable")
            reached = np.searchsorted(np.cumsum(kept[ranked]), top_p * np.cumsum(kept)[-1]) + 1
            if top_p < 1.0:
                kept[ranked[reached:]] = 0.0
            kept[kept < min_p * kept.max()] = 0.0
            found = token_weights(values, temperature, top_k, top_p, min_p)
            np.testing.assert_array_equal(found, kept)
            running = np.cumsum(kept)
            for u in (0.0, 0.37, 1 - 2.0**-53):
                at = min(np.searchsorted(running, u * running[-1], "right"), kept.nonzero()[0][-1])
                assert draw_token(found, u) == at
    exact = numerics.exp32(values - values.max()).astype(np.float64)
    assert exp_total(values) == np.cumsum(exact)[-1]
    order = np.argsort(-values, kind="stable")
    for count in (0, 1, 20, size):
        assert top_tokens(values, count) == order[:count].tolist()


def test_values_that_are_no_numbers_stay_so() -> None:
    assert np.isnan(exp_total(np.array([1.0, np.nan, 2.0], np.float32)))
    assert np.isnan(exp_total(np.array([np.inf, 1.0], np.float32)))
    assert top_tokens(np.array([-0.0, 0.0, -1.0], np.float32), 2) == [0, 1]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=2.0, top_k=199, min_p=0.02),
        SamplingParams(temperature=3.0, top_k=60),
        SamplingParams(temperature=3.0, top_k=10**30),
        SamplingParams(temperature=1.3, top_k=5),
        SamplingParams(temperature=1e-45, top_p=0.8),
        SamplingParams(temperature=0.9, top_k=9, top_p=0.9, min_p=0.05),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "ties", "forbidden", "ascending"])
def test_draws_of_many_rows_are_those_of_each(params: SamplingParams, kind: str) -> None:
    logits = np.stack([values_of(200 + i, 2.0, kind)[:200] for i in range(6)])
    samplers = [Sampler(params, 200, seed=2**64 - 7 + i, sample=i) for i in range(6)]
    draws = []
    for row, one in enumerate(samplers):
        assert one.filters is not None
        draws.append((row, one.filters, one.seed, one.sample, 100 + row))
    want = [one.choose(logits[i], 100 + i, (), ())[0] for i, one in enumerate(samplers)]
    assert draw_tokens(logits, draws) == want
    assert draw_tokens(logits, [draws[4], draws[1]]) == [want[4], want[1]]


def test_rows_without_a_draw_are_told() -> None:
    logits = np.zeros((5, 40), np.float32)
    logits[0, 3], logits[1, 39], logits[2], logits[3, 7] = np.nan, np.inf, -np.inf, -np.inf
    draws = [(row, (1.0, 0.0, 1.0, 0), 1, 0, 9) for row in range(5)]
    found = draw_tokens(logits, draws)
    assert found[:3] == [-1, -1, -1] and min(found[3:]) >= 0


def test_what_a_plain_draw_does_not_do_is_none() -> None:
    others = (
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0, logprobs=1),
        SamplingParams(temperature=1.0, repetition_penalty=1.1),
        SamplingParams(temperature=1.0, allowed_token_ids=[3]),
    )
    assert [Sampler(one, 40, seed=1).filters for one in others] == [None] * 4
