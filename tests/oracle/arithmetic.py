"""Sums, norms and functions of the FP16 path. FP32 arrays hold FP16 values where a docstring says
so. Every operation rounds once, in the order of docs/numbers.md, 2 to 4."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
UNIT, SEGMENTS, TILE, CHUNK = 32, 8, 32, 4096

_HEADER = Path(__file__).resolve().parents[2] / "csrc" / "include" / "lora" / "coefficients.h"


@cache
def coefficient(name: str) -> F32:
    """A float table or constant of the committed header."""
    match = re.search(rf"float lora_{name}(?:\[\d+\])? = {{?([^;}}]*)}}?;", _HEADER.read_text())
    assert match, name
    return np.array([float.fromhex(t.strip().rstrip("f")) for t in match[1].split(",")], np.float32)


def store(values: F32) -> F32:
    """Values rounded to FP16 as they are stored, returned as FP32."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = values.astype(np.float16)
    return half.astype(np.float32)


def segments(columns: int) -> list[range]:
    """The eight segments of a sum over `columns`, in columns."""
    units = -(-columns // UNIT)
    edges = [min(columns, s * units // SEGMENTS * UNIT) for s in range(SEGMENTS + 1)]
    return [range(a, b) for a, b in pairwise(edges)]


def tree(parts: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    """((0+1)+(2+3))+((4+5)+(6+7))."""
    a, b, c, d, e, f, g, h = parts
    return add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h)))


def product(x: F32, w: F32) -> F32:
    """Matmul of x [rows, K] and w [K, N], both of FP16 values: FP32 [rows, N]."""
    parts = []
    for segment in segments(x.shape[1]):
        total = np.zeros((x.shape[0], w.shape[1]), np.float32)
        for k in segment:
            total += x[:, k, None] * w[k]
        parts.append(total)
    result: F32 = tree(parts, np.add)
    return result


def layer_norm(x: F32, gamma: F32, beta: F32, eps: float) -> F32:
    """LayerNorm of FP16 rows x [rows, d], stored."""
    parts = [_moments(x[:, segment.start : segment.stop]) for segment in segments(x.shape[1])]
    _, total, square = tree(parts, _merge)
    d = np.float32(x.shape[1])
    mean = total / d
    r = np.float32(1) / np.sqrt(square / d + np.float32(eps))
    return store(((x - mean[:, None]) * r[:, None]) * gamma + beta)


def _moments(x: F32) -> tuple[int, F32, F32]:
    n = x.shape[1]
    total, square = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
    for column in range(n):
        total = total + x[:, column]
    mean = total / np.float32(n) if n else total
    for column in range(n):
        off = x[:, column] - mean
        square = square + off * off
    return n, total, square


def _merge(a: tuple[int, F32, F32], b: tuple[int, F32, F32]) -> tuple[int, F32, F32]:
    (na, ta, qa), (nb, tb, qb) = a, b
    if na == 0 or nb == 0:
        return b if na == 0 else a
    delta = tb / np.float32(nb) - ta / np.float32(na)
    weight = np.float32(na * nb) / np.float32(na + nb)
    return na + nb, ta + tb, (qa + qb) + (delta * delta) * weight


def rms_norm(x: F32, gamma: F32, eps: float, above: float = 1) -> F32:
    """RMSNorm of FP16 rows, stored; `above` is the numerator of r."""
    r = np.float32(above) / np.sqrt(squares(x) / np.float32(x.shape[1]) + np.float32(eps))
    return store((x * r[:, None]) * gamma)


def squares(x: F32) -> F32:
    """The sum of squares of each row by the segment rule."""
    parts = []
    for segment in segments(x.shape[1]):
        total = np.zeros(len(x), np.float32)
        for column in segment:
            total = total + x[:, column] * x[:, column]
        parts.append(total)
    result: F32 = tree(parts, np.add)
    return result


def norm_heads(heads: F32, gamma: F32, eps: float) -> F32:
    """RMSNorm of each of the FP16 heads [heads, positions, head_dim] by itself, stored."""
    return np.stack([rms_norm(head, gamma, eps) for head in heads])


def norm_row(heads: F32, gamma: F32, eps: float) -> F32:
    """RMSNorm over the columns of all heads, stored; gamma [heads*head_dim]."""
    total = np.zeros(heads.shape[1], np.float32)
    for head in heads:
        total = total + squares(head)
    d = np.float32(heads.shape[0] * heads.shape[2])
    r = np.float32(1) / np.sqrt(total / d + np.float32(eps))
    return store((heads * r[None, :, None]) * gamma.reshape(len(heads), 1, -1))


def _power_of_two(n: NDArray[np.int32]) -> F32:
    result: F32 = np.ldexp(np.ones(n.shape, np.float32), n)
    return result


def exp(x: F32) -> F32:
    """The contract's exp in FP32."""
    c = coefficient("exp_c")
    with np.errstate(invalid="ignore", over="ignore"):
        clipped = np.clip(x, -100, 100)
        n = np.rint(clipped * coefficient("log2e"))
        r = (clipped - n * coefficient("ln2_hi")) - n * coefficient("ln2_lo")
        p = np.full(x.shape, c[0], np.float32)
        for term in c[1:]:
            p = p * r + term
        whole = n.astype(np.int32)
        y = p * _power_of_two(whole >> 1) * _power_of_two(whole - (whole >> 1))
    y = np.where(x < np.float32(-87), np.float32(0), y)
    y = np.where(x > np.float32(88.7), np.float32(np.inf), y)
    result: F32 = np.where(np.isnan(x), np.float32(np.nan), y).astype(np.float32)
    return result


def silu(g: F32) -> F32:
    """g / (1 + exp(-g))."""
    with np.errstate(invalid="ignore"):
        result: F32 = g / (np.float32(1) + exp(-g))
        return result


def gelu(x: F32, table: str) -> F32:
    """Chords of the committed table "tanh" or "erf"."""
    slope, offset = coefficient(f"gelu_{table}_a"), coefficient(f"gelu_{table}_b")
    inside = (x >= -8) & (x < 8)
    index = np.where(inside, np.floor(np.where(inside, x, 0) * 64) + 512, 0).astype(int)
    y = slope[index] * np.where(inside, x, np.float32(0)) + offset[index]
    y = np.where(inside, y, x)
    result: F32 = np.where(x < -8, np.float32(0), y).astype(np.float32)
    return result


def soft_cap(x: F32, bound: float) -> F32:
    """The contract's tanh(x/bound)*bound."""
    c = np.float32(bound)
    with np.errstate(invalid="ignore", over="ignore"):
        x = x * (np.float32(1) / c)
        size = np.abs(x)
        t = np.float32(1) - np.float32(2) / (exp(size + size) + np.float32(1))
        square, terms = x * x, coefficient("tanh_c")
        p = np.full(x.shape, terms[0], np.float32)
        for term in terms[1:]:
            p = p * square + term
        small = x + (x * square) * p
        t = np.where(size < np.float32(0.625), small, np.where(x < 0, -t, t))
        result: F32 = t * c
    return result


def activate(x: F32, kind: str) -> F32:
    """The configuration's activation of stored values, stored."""
    if kind in ("relu", "relu2"):
        found = np.where(x > 0, x, np.where(np.isnan(x), x, np.float32(0)))
        return store(found * found if kind == "relu2" else found)
    return store(gelu(x, kind.removeprefix("gelu_")))


def bf16(x: F32) -> F32:
    """Finite values rounded to BF16, ties to even, by the two neighbours that FP32's bits give."""
    low = (x.view(np.uint32) >> 16 << 16).astype(np.uint32)
    high = low + np.uint32(0x10000)
    below, above = np.abs(x - low.view(np.float32)), np.abs(high.view(np.float32) - x)
    up = (above < below) | ((above == below) & (low >> 16 & 1 == 1))
    return np.where(up, high, low).astype(np.uint32).view(np.float32)


def visible_to(count: int, window: int) -> NDArray[np.bool_]:
    """[rows, positions]: the row itself and what comes before it, `window` of them (0: all)."""
    found: NDArray[np.bool_] = np.tri(count, dtype=bool)
    if window:
        found &= ~np.tri(count, k=-window, dtype=bool)
    return found


def attend(
    q: F32,
    k: F32,
    v: F32,
    scale: np.float32,
    bias: F32 | None = None,
    window: int = 0,
    cap: float = 0,
    sink: np.float32 | None = None,
) -> F32:
    """Causal attention of one head over FP16 k, v [positions, head_dim] and q of all positions or
    of the last ones, stored. The scores are capped if `cap` is not 0; then `bias` [rows, positions]
    is added to them. `sink`: a logit without a position."""
    count, rows = len(k), len(q)
    visible = visible_to(count, window)[count - rows :]
    scores = product(q, np.ascontiguousarray(k.T)) * scale
    if cap:
        scores = soft_cap(scores, cap)
    if bias is not None:
        scores = scores + bias
    top = np.where(visible, scores, -np.inf).max(axis=1, keepdims=True)
    e = np.where(visible, store(exp(scores - top)), np.float32(0))
    totals = nothing = (np.zeros((rows, 1), np.float32), np.zeros(q.shape, np.float32))
    for chunk in range(0, count, CHUNK):
        of_chunk = nothing
        for tile in range(chunk, min(chunk + CHUNK, count), TILE):
            below, above = nothing
            for j in range(tile, min(tile + TILE, count)):
                below = below + e[:, j, None]
                above = above + np.where(visible[:, j, None], e[:, j, None] * v[j], 0)
            of_chunk = of_chunk[0] + below, of_chunk[1] + above
        totals = totals[0] + of_chunk[0], totals[1] + of_chunk[1]
    total = totals[0] if sink is None else totals[0] + exp(sink - top)
    return store(totals[1] / total)
