"""Compares the emitted tokens of two trees on the same texts by paired differences.

Rounds of one text are not independent, so the standard error is over texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_lab.spec_tuning.acceptance import Rounds

Floats = NDArray[np.float64]


def totals(rounds: Rounds, texts: int) -> tuple[Floats, Floats]:
    """Rounds and emitted tokens of each text, both float64 [texts]."""
    count = np.bincount(rounds.texts, minlength=texts).astype(np.float64)
    tokens = np.bincount(rounds.texts, weights=rounds.emitted, minlength=texts)
    return count, tokens.astype(np.float64)


def gain(a: Rounds, b: Rounds, texts: int) -> tuple[float, float]:
    """AAT of `a` minus AAT of `b`, and its standard error over texts (linearized, for ratios)."""
    deviation = np.zeros(texts)
    for rounds, sign in ((a, 1.0), (b, -1.0)):
        count, tokens = totals(rounds, texts)
        deviation += sign * (tokens - rounds.aat * count) / count.mean()
    error = float(deviation.std(ddof=1)) / texts**0.5 if texts > 1 else float("inf")
    return a.aat - b.aat, error


def deviation(rounds: Rounds, aat: float, texts: int) -> float:
    """Difference of the rounds' AAT from `aat`, in standard errors over texts."""
    count, tokens = totals(rounds, texts)
    error = float((tokens - rounds.aat * count).std(ddof=1)) * texts**0.5 / count.sum()
    return float(abs(rounds.aat - aat) / max(error, 1e-12))
