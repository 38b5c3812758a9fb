"""What the C library makes of logits FP32 [V] on the host, none of them NaN, and its random numbers
(docs/numbers.md, 8, 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .native import ffi, lib

F32 = NDArray[np.float32]


def uniforms(seed: int, sample: int, position: int, stream: int, count: int) -> list[float]:
    """`count` random numbers in [0, 1) for the token at `position`. Stream 0 has one; each other
    use has its own `stream`, from 1."""
    out = ffi().new("double[]", count)
    lib().lora_uniforms(seed, sample, position, stream, count, out)
    return list(out)


def token_weights(logits: F32, temperature: float, top_k: int, top_p: float, min_p: float) -> F32:
    """Weights FP32 [V], +0 for tokens that a filter drops. The largest logit is finite;
    `temperature` is at least 2^-126; `top_k` <= 0 keeps all."""
    weights = np.empty(logits.size, np.float32)
    top_k = max(0, min(top_k, logits.size))
    keys = np.empty(logits.size, np.uint64) if top_k or top_p < 1.0 else None
    filters = ffi().new("struct lora_filters *", (top_p, min_p, temperature, top_k))
    lib().lora_token_weights(_floats(logits), logits.size, filters, _keys(keys), _floats(weights))
    return weights


def draw_token(weights: F32, u: float) -> int:
    """The token that `u` in [0, 1) draws from weights FP32 [V]."""
    return int(lib().lora_draw_token(_floats(weights), weights.size, u))


Draw = tuple[int, tuple[float, float, float, int], int, int, int]
"""A row; top-p, min-p, temperature, top-k as for `token_weights`; seed, sample, position."""


def draw_tokens(logits: F32, draws: Sequence[Draw]) -> list[int]:
    """The token of each draw from its row of logits FP32 [rows, V]; -1 where the row holds NaN, or
    its maximum is infinite or -infinity."""
    size = logits.shape[1]
    rows = ffi().from_buffer("float[]", logits)
    each = ffi().new(
        "struct lora_draw[]",
        [(rows + row * size, filters, *counter) for row, filters, *counter in draws],
    )
    keys = ffi().from_buffer("uint64_t[]", np.empty(size, np.uint64))
    weights = ffi().from_buffer("float[]", np.empty(size, np.float32))
    ids = ffi().from_buffer("uint32_t[]", np.empty(size, np.uint32))
    lib().lora_draw_tokens(each, len(draws), size, keys, weights, ids)
    return [-1 if draw.failed else draw.token for draw in each]


def exp_total(logits: F32) -> float:
    """The FP64 sum of exp(logit - max)."""
    return float(lib().lora_exp_total(_floats(logits), logits.size))


def top_tokens(logits: F32, count: int) -> list[int]:
    """Ids of the `count` largest logits in descending order. Ties: the lower id first."""
    count = min(count, logits.size)
    ids = np.empty(count, np.uint32)
    keys = _keys(np.empty(count, np.uint64))
    out = ffi().from_buffer("uint32_t[]", ids, require_writable=True)
    lib().lora_top_tokens(_floats(logits), logits.size, count, keys, out)
    found: list[int] = ids.tolist()
    return found


def _floats(values: F32) -> Any:
    return ffi().from_buffer("float[]", np.ascontiguousarray(values, np.float32))


def _keys(keys: NDArray[np.uint64] | None) -> Any:
    return ffi().NULL if keys is None else ffi().from_buffer("uint64_t[]", keys)
