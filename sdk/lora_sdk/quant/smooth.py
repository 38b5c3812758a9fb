"""Moves the difficulty of inputs into weights (SmoothQuant, arXiv 2211.10438, equations 3 and 4).
Input column j is divided by s_j and row j of the weights is multiplied by s_j. The division is
folded into the operation before, so it costs nothing at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.layer import F32, Parameters

STRENGTHS = np.linspace(0.0, 1.0, 6)
Loss = Callable[[F32], float]


@dataclass(frozen=True)
class Smoothing:
    """The best divisor. `strength` None: no divisor helped."""

    divisor: F32
    strength: float | None
    loss: float
    plain: float
    """Loss without a divisor."""


def divisors(top_x: F32, mean_x: F32, top_w: F32) -> Iterator[tuple[float, F32]]:
    """Candidates (strength, s [K]): max|x|^a / max|w|^(1-a), and the form with means as in
    activation-aware scaling (AWQ, arXiv 2306.00978, section 3.2). Unused columns keep 1."""
    used = (top_x > 0) & (top_w > 0)
    x, mean, w = (np.where(used, part, 1).astype(np.float64) for part in (top_x, mean_x, top_w))
    for strength in STRENGTHS:
        for s in (x**strength / w ** (1 - strength), mean**strength):
            s = np.where(used, s / np.exp(np.log(s[used]).mean()) if used.any() else 1.0, 1.0)
            yield float(strength), np.clip(s, 1e-3, 1e3).astype(np.float32)


def choose(candidates: Iterator[tuple[float, F32]], size: int, loss: Loss) -> Smoothing:
    """The divisor [size] with the lowest loss. Candidates include all ones."""
    ones = np.ones(size, np.float32)
    plain = loss(ones)
    best = Smoothing(ones, None, plain, plain)
    for strength, s in candidates:
        found = loss(s)
        if found < best.loss:
            best = Smoothing(s, strength, found, plain)
    return best


def fold_norm(
    parameters: Parameters, norm: str, matrices: Sequence[str], s: F32, one_plus: bool = False
) -> None:
    """Fold s into a norm's gamma and beta; `one_plus`: the norm multiplies by 1 + gamma."""
    gamma, beta = f"{norm}.gamma", f"{norm}.beta"
    parameters.vectors[gamma] = divided_gamma(parameters.vectors[gamma], s, one_plus)
    if beta in parameters.vectors:
        parameters.vectors[beta] = parameters.vectors[beta] / s
    _scale_rows(parameters, matrices, s)


def divided_gamma(gamma: F32, s: F32, one_plus: bool) -> F32:
    """The gamma whose factors are those of `gamma` divided by s."""
    one = np.float32(one_plus)
    divided: F32 = (one + gamma) / s - one
    return divided


def fold_matrix(parameters: Parameters, before: str, after: str, s: F32, columns: F32) -> None:
    """Fold s into the matrix before (v before o, up before down): `columns` [N] divides its
    columns, `s` [K] multiplies the rows of `after`."""
    parameters.matrices[before] = parameters.matrices[before] / columns
    if f"{before}.bias" in parameters.vectors:
        parameters.vectors[f"{before}.bias"] = parameters.vectors[f"{before}.bias"] / columns
    _scale_rows(parameters, [after], s)


def shared_heads(s: F32, config: ModelConfig) -> F32:
    """[kv_heads*head_dim] -> [heads*head_dim]: each KV head's values for its query heads."""
    per_head = s.reshape(config.kv_heads, config.head_dim)
    return np.repeat(per_head, config.heads // config.kv_heads, axis=0).reshape(-1)


def over_sharing(x: F32, config: ModelConfig) -> F32:
    """The max over the query heads of a KV head: [heads*head_dim] -> [kv_heads*head_dim]."""
    top: F32 = x.reshape(config.kv_heads, -1, config.head_dim).max(axis=1).reshape(-1)
    return top


def _scale_rows(parameters: Parameters, names: Sequence[str], s: F32) -> None:
    for name in names:
        parameters.matrices[name] = parameters.matrices[name] * s[:, None]
