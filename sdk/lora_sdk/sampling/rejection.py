"""Rejection sampling over sibling drafts, without replacement (docs/numbers.md, 8.6).

A stochastic draft samples the children of a node sequentially from its distribution q, without
replacement. The target has distribution p and accepts the first child with probability min(1, p/q).
On rejection, p becomes the residual max(p - q, 0), q loses that child, both are normalized again,
and the next child is tried. After the last rejection the token is drawn from the remaining p.
For any q the tokens are distributed as p (Leviathan et al., 2023, section 3.1; for several siblings
Jeon et al., 2024, theorem 3.1): each rejection leaves exactly the part of p that q did not cover.

All functions are pure; `uniforms` are numbers in [0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError

Weights = NDArray[np.float64]


def draw(weights: Weights, uniform: float) -> int:
    """The first token whose running sum exceeds uniform * total; weights float64 [V] at least 0."""
    running = np.cumsum(weights)
    found = int(np.searchsorted(running, uniform * running[-1], side="right"))
    return found if found < len(weights) else int(np.flatnonzero(weights)[-1])  # rounded up


def draw_siblings(weights: Weights, uniforms: Sequence[float]) -> list[int]:
    """Distinct tokens drawn from weights float64 [V] without replacement, one per uniform. Fewer
    if fewer tokens have a weight above 0."""
    left = np.array(weights, dtype=np.float64)
    found: list[int] = []
    for uniform in uniforms:
        if left.sum() <= 0.0:
            break
        found.append(draw(left, uniform))
        left[found[-1]] = 0.0
    return found


def residual(p: Weights, q: Weights) -> Weights:
    """max(p - q, 0) of two distributions float64 [V], normalized. p if all of it is 0, which only
    rounding can cause."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    return rest / total if total > 0.0 else p


def choose(p: Weights, q: Weights, siblings: Sequence[int], uniforms: Sequence[float]) -> int:
    """The token after a node: one of the siblings, or a token that was not drafted.

    `p` and `q` are the target's and the draft's weights float64 [V]. `siblings` are those that
    `draw_siblings` drew from q. `uniforms` has one number per sibling and one more. RequestError if
    a sibling cannot have been drawn from q."""
    target, draft = p / p.sum(), np.array(q, dtype=np.float64)
    if draft.shape != target.shape or not (draft >= 0.0).all():  # NaN is not
        raise RequestError(
            f"a draft's weights are {list(draft.shape)}; expected {list(target.shape)} numbers of "
            "at least 0"
        )
    for token, uniform in zip(siblings, uniforms, strict=False):
        total = draft.sum()
        if not 0.0 < draft[token] <= total:
            raise RequestError(
                f"sibling token {token} has weight {draft[token]:g} of {total:g} left in the "
                "draft's distribution; expected siblings drawn from it"
            )
        share = draft / total
        if uniform * share[token] < target[token]:
            return token
        target = residual(target, share)
        draft[token] = 0.0
    return draw(target, uniforms[len(siblings)])
