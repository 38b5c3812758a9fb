"""Bootstrap test of whether one tree emits more than another: texts are drawn with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lora_lab.spec_tuning.acceptance import Rounds
from lora_lab.spec_tuning.comparison import totals


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap_gain(
    ours: Sequence[Rounds], theirs: Sequence[Rounds], texts: int, seed: int = 0,
    draws: int = 2000, confidence: float = 0.95,
) -> Interval:  # fmt: skip
    """Mean AAT difference, `ours` - `theirs`, over pairs of trees (e.g. of equal size), with its
    percentile interval over `draws` draws of texts."""
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
