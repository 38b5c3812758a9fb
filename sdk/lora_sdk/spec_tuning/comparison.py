"""Whether one tree emits more than another on the same texts, by paired differences.

Rounds of one text are not independent, so texts are the units: of the standard error, and of the
bootstrap, which draws texts with replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.spec_tuning.acceptance import Rounds

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean and the interval that holds it with the asked confidence."""

    mean: float
    low: float
    high: float


def totals(rounds: Rounds, texts: int) -> tuple[Floats, Floats]:
    """Rounds and emitted tokens of each text: float64 [texts] both."""
    count = np.bincount(rounds.texts, minlength=texts).astype(np.float64)
    tokens = np.bincount(rounds.texts, weights=rounds.emitted, minlength=texts)
    return count, tokens.astype(np.float64)


def gain(a: Rounds, b: Rounds, texts: int) -> tuple[float, float]:
    """AAT of `a` less that of `b`, and its standard error over texts (of ratios, linearised)."""
    deviation = np.zeros(texts)
    for rounds, sign in ((a, 1.0), (b, -1.0)):
        count, tokens = totals(rounds, texts)
        deviation += sign * (tokens - rounds.aat * count) / count.mean()
    error = float(deviation.std(ddof=1)) / texts**0.5 if texts > 1 else float("inf")
    return a.aat - b.aat, error


def deviation(rounds: Rounds, aat: float, texts: int) -> float:
    """By how many standard errors, over texts, the rounds' AAT differs from `aat`."""
    count, tokens = totals(rounds, texts)
    error = float((tokens - rounds.aat * count).std(ddof=1)) * texts**0.5 / count.sum()
    return float(abs(rounds.aat - aat) / max(error, 1e-12))


def bootstrap_gain(
    ours: Sequence[Rounds], theirs: Sequence[Rounds], texts: int, seed: int = 0,
    draws: int = 2000, confidence: float = 0.95,
) -> Interval:  # fmt: skip
    """Mean over pairs (of trees of equal size, say) of ours' AAT less theirs', with its percentile
    interval over `draws` draws of texts. RequestError: not as many of ours as of theirs, or none.
    """
    if len(ours) != len(theirs) or not ours:
        raise RequestError(f"{len(ours)} and {len(theirs)} trees to compare; expected pairs")
    random = np.random.default_rng(seed)
    chosen = random.multinomial(texts, np.full(texts, 1 / texts), size=draws).astype(np.float64)
    drawn = np.zeros(draws)
    for a, b in zip(ours, theirs, strict=True):
        for rounds, sign in ((a, 1.0), (b, -1.0)):
            count, tokens = totals(rounds, texts)
            drawn += sign * (chosen @ tokens) / (chosen @ count) / len(ours)
    mean = sum(a.aat - b.aat for a, b in zip(ours, theirs, strict=True)) / len(ours)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high))
