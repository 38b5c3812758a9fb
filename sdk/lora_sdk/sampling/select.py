"""Choosing a token: the likeliest one, or a draw among those that top-k, top-p and min-p leave."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import numerics
from lora_host.errors import ModelError, RequestError

Logits = NDArray[np.float32]
_TINY = float(np.finfo(np.float32).tiny)


def check_finite(logits: Logits, position: int) -> None:
    """ModelError when a logit of the token at `position` is NaN."""
    if np.isnan(logits).any():
        token = int(np.flatnonzero(np.isnan(logits))[0])
        raise ModelError(
            f"logits of position {position} hold NaN (first: token {token}); expected numbers; "
            "check the model's weights for values that overflow FP16"
        )


def likeliest(logits: Logits) -> int:
    """The token with the largest logit; of equal ones the lowest id."""
    return int(np.argmax(logits))


def tempered(logits: Logits, temperature: float) -> Logits:
    """(logit - max) / temperature, FP32 [V]; forbidden tokens stay at -infinity."""
    top = np.max(logits)
    if top == -np.inf:
        raise RequestError("no token may be chosen: every one is forbidden")
    if top == np.inf:
        raise ModelError(
            f"logit of token {likeliest(logits)} is infinite; expected finite ones to sample from"
        )
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to -infinity
        scaled: Logits = (logits - top) / np.float32(max(temperature, _TINY))
    return scaled


def keep_top_k(logits: Logits, k: int) -> NDArray[np.bool_]:
    """Mask [V] of the k largest; of equal ones the lower ids."""
    if k <= 0 or k >= logits.size:
        return np.ones(logits.size, dtype=np.bool_)
    edge = np.partition(logits, logits.size - k)[logits.size - k]
    keep: NDArray[np.bool_] = logits > edge
    ties = np.flatnonzero(logits == edge)
    keep[ties[: k - int(np.count_nonzero(keep))]] = True
    return keep


def keep_top_p(weights: NDArray[np.float64], top_p: float) -> NDArray[np.bool_]:
    """Mask [V] of the shortest run, likeliest first, whose weight reaches top_p of the total."""
    if top_p >= 1.0:
        return weights > 0.0
    total = np.cumsum(weights)[-1]
    order = np.argsort(-weights, kind="stable")
    running = np.cumsum(weights[order])
    count = int(np.searchsorted(running, top_p * total, side="left")) + 1
    keep = np.zeros(weights.size, dtype=np.bool_)
    keep[order[:count]] = True
    return keep


def draw(logits: Logits, u: float, top_k: int, top_p: float, min_p: float) -> int:
    """Draw a token from tempered logits FP32 [V] whose largest value is 0.

    The token is the first id whose running float64 sum exceeds u * total; u is in [0, 1).
    """
    running = np.cumsum(weights_of(logits, top_k, top_p, min_p))
    return int(np.searchsorted(running, u * running[-1], side="right"))


def weights_of(logits: Logits, top_k: int, top_p: float, min_p: float) -> NDArray[np.float64]:
    """Weights float64 [V] of tempered logits whose largest value is 0, those left out being 0."""
    weights = numerics.exp32(logits).astype(np.float64)
    weights[~keep_top_k(logits, top_k)] = 0.0
    weights[~keep_top_p(weights, top_p)] = 0.0
    if min_p > 0.0:
        weights[weights < min_p * weights.max()] = 0.0
    return weights
