"""Token selection: argmax, or a draw among the tokens that top-k, top-p and min-p keep
(docs/numbers.md, 8.3 and 8.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import numerics
from lora_host.errors import ModelError, RequestError

Logits = NDArray[np.float32]
Ids = NDArray[np.intp]
_TINY = float(np.finfo(np.float32).tiny)


def check_finite(logits: Logits, position: int) -> None:
    """ModelError when a logit of the token at `position` is NaN."""
    if np.isnan(logits.max()):  # NaN if any logit is NaN
        token = int(np.flatnonzero(np.isnan(logits))[0])
        raise ModelError(
            f"logits of position {position} hold NaN (first: token {token}); expected numbers; "
            "check the model's weights for values that overflow FP16"
        )


def most_likely(logits: Logits) -> int:
    """The token with the max logit. Ties: the lowest id."""
    return int(np.argmax(logits))


def tempered(logits: Logits, temperature: float) -> Logits:
    """(logit - max) / temperature, FP32 [V]; forbidden tokens stay at -infinity."""
    top = logits.max()
    if top == -np.inf:
        raise RequestError("no token may be chosen: every one is forbidden")
    if top == np.inf:
        raise ModelError(
            f"logit of token {most_likely(logits)} is infinite; expected finite ones to sample from"
        )
    return divided(logits - top, temperature)


def divided(logits: Logits, temperature: float) -> Logits:
    """logit / temperature, FP32 [V]."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the max to -infinity
        scaled: Logits = logits / np.float32(max(temperature, _TINY))
    return scaled


def top_k_ids(logits: Logits, k: int) -> Ids | None:
    """Ids of the k largest logits, ascending. Ties: the lower ids. None if all are kept."""
    if k <= 0 or k >= logits.size:
        return None
    edge = np.partition(logits, logits.size - k)[logits.size - k]
    above, ties = np.flatnonzero(logits > edge), np.flatnonzero(logits == edge)
    found = np.concatenate([above, ties[: k - above.size]])
    found.sort()
    return found


def keep_top_p(weights: NDArray[np.float64], top_p: float) -> NDArray[np.bool_]:
    """Mask [V] of the fewest most likely tokens whose weights reach top_p (below 1) of the
    total."""
    total = np.cumsum(weights)[-1]
    for threshold in (total * (1.0 - top_p) / weights.size, -1.0):
        # Weights below `threshold` sum to less than 1 - top_p: only the others need sorting. If
        # rounding breaks this, all are sorted.
        ids = np.flatnonzero(weights >= threshold)
        order = ids[np.argsort(-weights[ids], kind="stable")]
        running = np.cumsum(weights[order])
        count = int(np.searchsorted(running, top_p * total, side="left")) + 1
        if count <= order.size:
            break
    keep = np.zeros(weights.size, dtype=np.bool_)
    keep[order[:count]] = True
    return keep


def draw(logits: Logits, u: float, top_k: int, top_p: float, min_p: float) -> int:
    """Draw a token from tempered logits FP32 [V] whose max is 0.

    The token is the first id whose running float64 sum exceeds u * total; u is in [0, 1).
    """
    ids, weights = _candidates(logits, top_k, top_p, min_p)
    running = np.cumsum(weights)
    index = int(np.searchsorted(running, u * running[-1], side="right"))
    return index if ids is None else int(ids[index])


def weights_of(logits: Logits, top_k: int, top_p: float, min_p: float) -> NDArray[np.float64]:
    """Weights float64 [V] of tempered logits whose max is 0. Excluded tokens have weight 0."""
    ids, weights = _candidates(logits, top_k, top_p, min_p)
    if ids is None:
        return weights
    every = np.zeros(logits.size)
    every[ids] = weights
    return every


def _candidates(
    logits: Logits, top_k: int, top_p: float, min_p: float
) -> tuple[Ids | None, NDArray[np.float64]]:
    """Ids that top-k keeps, ascending (None: all), and their weights, 0 for those that top-p or
    min-p exclude. A weight of 0 changes no running sum, so ids that top-k drops may be absent."""
    ids = top_k_ids(logits, top_k)
    weights = numerics.exp32(logits if ids is None else logits[ids]).astype(np.float64)
    if top_p < 1.0:
        weights[~keep_top_p(weights, top_p)] = 0.0
    if min_p > 0.0:
        weights[weights < min_p * weights.max()] = 0.0
    return ids, weights
