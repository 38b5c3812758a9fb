"""Rejection sampling over siblings: pairs of tokens are distributed as the target's own, and the
test that says so would notice a wrong residual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from lora_host.errors import RequestError
from lora_sdk.sampling import Sampler, SamplingParams, rejection
from lora_sdk.step.step import Row, StepResult
from lora_sdk.step.verify import Tree, verify
from tests.scripted import Bench

TOKENS = 6
PROMPT = [3, 1]
# The target's distribution of a token by the token before it, and the draft's, far from it: zeros,
# an almost certain token, and one that the target never takes.
_DRAWN = np.random.default_rng(8).dirichlet(np.full(TOKENS, 0.7), size=(2, TOKENS))
TARGET, DRAFT = np.where(_DRAWN < 0.02, 0.0, _DRAWN)


class FixedRunner:
    """A runner whose logits are the logarithm of TARGET's row of the row's token."""

    def step(self, rows: list[Row], kv_ops: object = (), path: object = ()) -> StepResult:
        with np.errstate(divide="ignore"):
            logits = np.log(TARGET[[row.token for row in rows]]).astype(np.float32)
        every = tuple(range(len(rows)))
        return StepResult(1, every, logits, None, None, (), np.zeros(0, np.void))


def two_tokens(seed: int, widths: tuple[int, int]) -> tuple[int, int]:
    """The next two tokens, by verifications of trees whose nodes are drawn from DRAFT."""
    bench = Bench(pages=8, sequences=1, context=32)
    bench.stepper._runner = FixedRunner()  # type: ignore[assignment]
    sequence = bench.cache.open()
    sampler = Sampler(SamplingParams(temperature=1.0), TOKENS, seed)
    tokens: list[int] = []
    pending = 2
    while len(tokens) < 2:
        tree = drawn_tree(sampler, pending, bench.cache.length(sequence), widths)
        found = verify(bench.stepper, bench.cache, sampler, sequence, tree, 0, True)
        tokens += found.tokens
        pending = found.tokens[-1]
    return tokens[0], tokens[1]


def drawn_tree(sampler: Sampler, pending: int, length: int, widths: tuple[int, int]) -> Tree:
    tokens, parents, drafted = [pending], [-1], [DRAFT[pending]]
    level = [0]
    for depth, width in enumerate(widths):
        below = []
        for node in level:
            weights = DRAFT[tokens[node]]
            for token in sampler.draw_siblings(weights, length + depth + 1, width):
                below.append(len(tokens))
                tokens.append(token)
                parents.append(node)
                drafted.append(DRAFT[token])
        level = below
    return Tree(tokens, parents, drafted)


def p_value(draws: int, widths: tuple[int, int], first: int = 0) -> float:
    """Of the chi-squared test of pairs against the target's distribution."""
    counts = np.zeros((TOKENS, TOKENS))
    for seed in range(first, first + draws):
        counts[two_tokens(seed, widths)] += 1
    expected = (TARGET[2] / TARGET[2].sum())[:, None] * (TARGET / TARGET.sum(1, keepdims=True))
    assert not counts[expected == 0].any()
    possible = expected > 0
    return float(chisquare(counts[possible], expected[possible] * draws).pvalue)


def without_residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return p


def with_replacement(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    rest = np.maximum(p - q * q, 0.0)
    return rest / rest.sum()


WRONG = [without_residual, with_replacement]


@pytest.mark.parametrize("widths", [(1, 1), (3, 2)])
def test_pairs_are_distributed_as_the_targets(widths: tuple[int, int]) -> None:
    assert p_value(4000, widths) > 1e-3


@pytest.mark.parametrize(
    ("widths", "pairs"),
    [
        pytest.param((2, 2), 20_000, marks=pytest.mark.slow),
        *(
            pytest.param(widths, 100_000, marks=pytest.mark.long)
            for widths in [(1, 1), (2, 2), (4, 3)]
        ),
    ],
)
def test_many_pairs_are_distributed_as_the_targets(widths: tuple[int, int], pairs: int) -> None:
    assert p_value(pairs, widths) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_residual_fails(
    wrong: Callable[[np.ndarray, np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejection, "residual", wrong)
    assert p_value(4000, (3, 2)) < 1e-3


@pytest.mark.slow
def test_one_token_is_exact_over_fine_noise() -> None:
    """The acceptance of every sibling times its chance, plus the residual, is p: summed exactly
    over all draws of two siblings, and a fine grid of noise for the choice."""
    p, q = TARGET[1] / TARGET[1].sum(), DRAFT[1] / DRAFT[1].sum()
    found = np.zeros(TOKENS)
    grid = (np.arange(16) + 0.5) / 16
    for first in np.flatnonzero(q):
        for second in np.flatnonzero(q):
            if second == first:
                continue
            chance = q[first] * q[second] / (1 - q[first])
            for a in grid:
                for b in grid:
                    for c in grid:
                        token = rejection.choose(p, q, [first, second], [a, b, c])
                        found[token] += chance / len(grid) ** 3
    np.testing.assert_allclose(found, p, atol=0.02)


def test_siblings_are_different_and_no_more_than_there_are() -> None:
    weights = np.array([0.0, 0.5, 0.0, 0.25, 0.25])
    found = rejection.draw_siblings(weights, [0.999999] * 4)
    assert sorted(found) == [1, 3, 4]
    assert rejection.draw(weights, 1 - 2**-53) == 4


def test_greedy_rejection_takes_the_likeliest() -> None:
    sampler = Sampler(SamplingParams(), TOKENS, 1)
    logits = np.log(TARGET[1] + 1e-3).astype(np.float32)
    for siblings in ([0, 1], [4, 5], [2, 3]):
        token, _ = sampler.choose_among(logits, 5, [], [], siblings, np.ones(TOKENS))
        assert token == int(np.argmax(logits))


def test_siblings_that_could_not_be_drawn_are_refused() -> None:
    p, q = np.ones(4), np.array([1.0, 0.0, 1.0, 0.0])
    for siblings in ([1], [0, 0]):
        with pytest.raises(RequestError, match="drawn from it"):
            rejection.choose(p, q, siblings, [0.99, 0.99, 0.99])
    for bad in (np.ones(3), np.array([1.0, np.nan, 0, 0]), np.array([1.0, -1, 0, 0])):
        with pytest.raises(RequestError, match="weights"):
            rejection.choose(p, bad, [0], [0.5, 0.5])
    with pytest.raises(RequestError, match="one entry per node"):
        Tree([1, 2], [-1, 0], [None])
