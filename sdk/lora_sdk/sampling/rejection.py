"""Rejection sampling over sibling drafts, without replacement (docs/numbers.md, 8.6).

A stochastic draft draws the children of a node from its distribution q, one after another and none
twice. The target, with distribution p, takes the first child with probability min(1, p/q). Where it
refuses, p becomes the residual max(p - q, 0) and q loses that child, both made whole again, and the
next child is tried; after the last one the token is drawn from what is left of p. Whatever q is,
tokens are distributed as p (Leviathan et al., 2023, section 3.1; for several siblings Jeon et al.,
2024, theorem 3.1): each refusal leaves exactly the part of p that q did not serve.

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
    return found if found < len(weights) else int(np.flatnonzero(weights)[-1])  # it rounded up


def draw_siblings(weights: Weights, uniforms: Sequence[float]) -> list[int]:
    """Different tokens drawn from weights float64 [V] without replacement, one a uniform; fewer
    where fewer have weight."""
    left = np.array(weights, dtype=np.float64)
    found: list[int] = []
    for uniform in uniforms:
        if left.sum() <= 0.0:
            break
        found.append(draw(left, uniform))
        left[found[-1]] = 0.0
    return found


def residual(p: Weights, q: Weights) -> Weights:
    """max(p - q, 0) of two distributions float64 [V], made whole; p where nothing is left, which
    rounding alone can bring about."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum()
    return rest / total if total > 0.0 else p


def choose(p: Weights, q: Weights, siblings: Sequence[int], uniforms: Sequence[float]) -> int:
    """The token after a node: one of the siblings, or one that nobody drafted.

    `p` and `q` are the target's and the draft's weights float64 [V], `siblings` what
    `draw_siblings` drew from q, `uniforms` one a sibling and one more. RequestError where a sibling
    could not have been drawn from q."""
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
                "draft's distribution; expected siblings that were drawn from it"
            )
        share = draft / total
        if uniform * share[token] < target[token]:
            return token
        target = residual(target, share)
        draft[token] = 0.0
    return draw(target, uniforms[len(siblings)])
