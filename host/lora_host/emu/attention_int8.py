"""Attention on INT8 q, k and v with static scales: both matmuls are exact INT32 sums
(docs/numbers.md, 6.6, which states the deviation from SmoothQuant's form)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.numerics import F32, exp32, soft_cap

_INT8_MAX = np.float32(127)


def attend_int8(
    q: F32,
    keys: F32,
    values: F32,
    entries: NDArray[np.int64],
    scale: np.float32,
    v_scale: np.float32,
    bias: F32 | None = None,
    cap: np.float32 | None = None,
    sinks: F32 | None = None,
) -> F32:
    """[rows, heads, head_dim] of one sequence's rows before rounding to FP16.

    `q` [rows, heads, head_dim], `keys` [heads, head_dim, entries] and `values` [heads, entries,
    head_dim] hold integers. `entries` [rows, positions]: index of K and V at each logical position,
    -1 is masked. The scores are capped where `cap` is neither None nor 0; then `bias` [rows, heads,
    positions] is added to them. `sinks` [heads] are logits without a position.
    e8 = rint(127*exp(s - m)); y = (sum e8*v8 / (sum e8 + 127*exp(sink - m))) * v_scale.
    """
    seen = entries >= 0
    longest = int(seen.sum(axis=1).max(initial=0))
    if longest > abi.MAX_INT8_POSITIONS:
        raise ValueError(f"{longest} positions, at most {abi.MAX_INT8_POSITIONS} are exact")
    # float64 represents every sum exactly
    sums = np.matmul(q.astype(np.float64).transpose(1, 0, 2), keys.astype(np.float64))
    scores = sums.astype(np.float32).transpose(1, 0, 2) * scale
    if cap:
        scores = soft_cap(scores, cap)
    if bias is not None:
        row, position = np.nonzero(seen)
        scores[row, :, entries[row, position]] += bias[row, :, position]
    visible = np.zeros((len(q), keys.shape[2]), np.bool_)
    rows = np.broadcast_to(np.arange(len(q))[:, None], entries.shape)
    visible[rows[seen], entries[seen]] = True
    np.copyto(scores, np.float32(-np.inf), where=~visible[:, None, :])
    maxima = scores.max(axis=2, keepdims=True)
    weights = np.rint(_INT8_MAX * exp32(scores - maxima)).astype(np.float64)
    denominator = weights.sum(axis=2).astype(np.float32)
    if sinks is not None:
        denominator = denominator + _INT8_MAX * exp32(sinks[None] - maxima[..., 0])
    numerator = np.matmul(weights.transpose(1, 0, 2), values.astype(np.float64))
    quotient = numerator.astype(np.float32).transpose(1, 0, 2) / denominator[..., None]
    result: F32 = quotient * v_scale
    return result
