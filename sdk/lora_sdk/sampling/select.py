"""Token selection: argmax, or a draw among the tokens that top-k, top-p and min-p keep
(docs/numbers.md, 8.3 and 8.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError, RequestError
from lora_host.logits import draw_token, token_weights

Logits = NDArray[np.float32]
_TINY = float(np.finfo(np.float32).tiny)


def check_finite(logits: Logits, position: int) -> None:
    """ModelError when a logit of the token at `position` is NaN."""
    if np.isnan(np.maximum.reduce(logits)):  # NaN if any logit is NaN
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
    return divided(logits - _finite_top(logits), temperature)


def _finite_top(logits: Logits) -> np.float32:
    top: np.float32 = np.maximum.reduce(logits)
    if top == -np.inf:
        raise RequestError("no token may be chosen: every one is forbidden")
    if top == np.inf:
        raise ModelError(
            f"logit of token {most_likely(logits)} is infinite; expected finite ones to sample from"
        )
    return top


def divided(logits: Logits, temperature: float) -> Logits:
    """logit / temperature, FP32 [V]."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the max to -infinity
        scaled: Logits = logits / np.float32(max(temperature, _TINY))
    return scaled


def filters_of(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[float, float, float, int]:
    """The filters of a draw, as lora_host.logits.Draw has them."""
    return top_p, min_p, max(temperature, _TINY), max(0, top_k)


def weights_of(
    logits: Logits, temperature: float, top_k: int, top_p: float, min_p: float
) -> Logits:
    """Weights FP32 [V] of logits FP32 [V]. Excluded tokens have weight 0. RequestError where all
    are forbidden, ModelError where one is infinite."""
    _finite_top(logits)
    return token_weights(logits, max(temperature, _TINY), top_k, top_p, min_p)


def draw(weights: Logits, u: float) -> int:
    """The first id whose running float64 sum of weights FP32 [V] exceeds u * total; u is in
    [0, 1)."""
    return draw_token(weights, u)
