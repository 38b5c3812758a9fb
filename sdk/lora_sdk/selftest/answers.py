"""The arithmetic of the FP16 path in plain NumPy, one rounding per line. Sums along K run in eight
segments, which are added as a tree. Positions are in tiles of 32, tiles in chunks of 4096. No libm
function is used. This
code is independent of the kernel models that it checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.coefficients import coefficients

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]
_UNIT, _SEGMENTS, _TILE, _CHUNK = 32, 8, 32, 4096


def segments(columns: int) -> list[tuple[int, int]]:
    """(first, end) column of each of the eight segments of a sum over `columns`."""
    units = (columns + _UNIT - 1) // _UNIT
    ends = [min(columns, s * units // _SEGMENTS * _UNIT) for s in range(_SEGMENTS + 1)]
    return list(pairwise(ends))


def tree_reduce(parts: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    """((0+1)+(2+3))+((4+5)+(6+7))."""
    level = list(parts)
    while len(level) > 1:
        level = [add(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def _stored(values: F32) -> F16:
    half: F16 = values.astype(np.float16)
    return half


def matmul(x: F16, w: F16) -> F32:
    """x [rows, K] @ w [K, N]: FP32 [rows, N]."""
    wide, parts = x.astype(np.float32), []
    for first, end in segments(x.shape[1]):
        total = np.zeros((len(x), w.shape[1]), np.float32)
        for k in range(first, end):
            total = total + wide[:, k : k + 1] * w[k].astype(np.float32)
        parts.append(total)
    result: F32 = tree_reduce(parts, np.add)
    return result


def moments(x: F16, columns: int, first: int = 0) -> F32:
    """LayerNorm's {T, Q} per segment of `columns`: [rows, 8, 2]. x [rows, n] holds the columns from
    `first` on. Segments not wholly in x are zero."""
    out = np.zeros((len(x), _SEGMENTS, 2), np.float32)
    for s, part in _local(x, columns, first):
        total, square = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
        for column in part.T:
            total = total + column
        mean = total / np.float32(part.shape[1])
        for column in part.T:
            square = square + (column - mean) * (column - mean)
        out[:, s, 0], out[:, s, 1] = total, square
    return out


def squares(x: F16, columns: int, first: int = 0) -> F32:
    """RMSNorm's sum of squares per segment, as in `moments`: [rows, 8]."""
    out = np.zeros((len(x), _SEGMENTS), np.float32)
    for s, part in _local(x, columns, first):
        total = np.zeros(len(x), np.float32)
        for column in part.T:
            total = total + column * column
        out[:, s] = total
    return out


def _local(x: F16, columns: int, first: int) -> list[tuple[int, F32]]:
    wide = x.astype(np.float32)
    return [
        (s, wide[:, a - first : b - first])
        for s, (a, b) in enumerate(segments(columns))
        if first <= a < b <= first + x.shape[1]
    ]


def layer_norm(x: F16, sums: F32, columns: int, gamma: F16, beta: F16, eps: float) -> F16:
    """LayerNorm of the local columns x, from the segment sums of all `columns`."""
    counts = [b - a for a, b in segments(columns)]
    parts = [(n, sums[:, s, 0], sums[:, s, 1]) for s, n in enumerate(counts)]
    _, total, square = tree_reduce(parts, _merge)
    d = np.float32(columns)
    mean = (total / d)[:, None]
    r = (np.float32(1) / np.sqrt(square / d + np.float32(eps)))[:, None]
    scaled = ((x.astype(np.float32) - mean) * r) * gamma.astype(np.float32)
    return _stored(scaled + beta.astype(np.float32))


def _merge(a: tuple[int, F32, F32], b: tuple[int, F32, F32]) -> tuple[int, F32, F32]:
    if not a[0] or not b[0]:
        return a if a[0] else b
    na, nb = np.float32(a[0]), np.float32(b[0])
    delta = b[1] / nb - a[1] / na
    weight = np.float32(a[0] * b[0]) / np.float32(a[0] + b[0])
    return a[0] + b[0], a[1] + b[1], (a[2] + b[2]) + (delta * delta) * weight


def rms_norm(
    x: F16, sums: F32, columns: int, gamma: F16, eps: float, above: float | None = None
) -> F16:
    """RMSNorm of the local columns x, from the segment sums of all `columns`. With `above`, the
    numerator of r, it multiplies by 1 + gamma."""
    total = tree_reduce([sums[:, s] for s in range(_SEGMENTS)], np.add)
    one = np.float32(1)
    r = (one if above is None else np.float32(above)) / np.sqrt(
        total / np.float32(columns) + np.float32(eps)
    )
    factor = gamma.astype(np.float32)
    factor = factor if above is None else one + factor
    return _stored((x.astype(np.float32) * r[:, None]) * factor)


def head_squares(x: F16, head_dim: int) -> F32:
    """The sum of squares of each head of x [rows, heads*head_dim]: [rows, heads]."""
    heads = x.reshape(-1, head_dim)
    sums = tree_reduce(list(squares(heads, head_dim).T), np.add)
    result: F32 = sums.reshape(len(x), -1)
    return result


def norm_heads(x: F16, sums: F32, columns: int, gamma: F16, eps: float) -> F16:
    """RMSNorm of heads x [rows, heads*head_dim], gamma [heads*head_dim], by the sums of squares
    [rows, heads] over so many columns each."""
    r = np.float32(1) / np.sqrt(sums / np.float32(columns) + np.float32(eps))
    wide = np.repeat(r, x.shape[1] // sums.shape[1], axis=1)
    return _stored((x.astype(np.float32) * wide) * gamma.astype(np.float32))


def rope(x: F16, angles: F32, head_dim: int) -> F16:
    """x [rows, heads*head_dim] rotated by angles [rows, 2, head_dim/2] (cos, sin)."""
    heads = x.astype(np.float32).reshape(len(x), -1, 2, head_dim // 2)
    a, b = heads[:, :, 0], heads[:, :, 1]
    cos, sin = angles[:, None, 0], angles[:, None, 1]
    rotated = np.stack([a * cos - b * sin, b * cos + a * sin], axis=2)
    return _stored(rotated.reshape(x.shape))


def exponential(x: F32) -> F32:
    """exp of FP32 values within -80..80 or below -87, which gives +0."""
    c = coefficients("exp_c").astype(np.float32)
    n = np.rint(x * coefficients("log2e").astype(np.float32)[0])
    r = x - n * coefficients("ln2_hi").astype(np.float32)[0]
    r = r - n * coefficients("ln2_lo").astype(np.float32)[0]
    p = np.broadcast_to(c[0], x.shape)
    for term in c[1:]:
        p = p * r
        p = p + term
    whole = n.astype(np.int32)
    half = whole >> 1
    y = np.ldexp(np.ldexp(p, half), whole - half)
    result: F32 = np.where(x < np.float32(-87), np.float32(0), y).astype(np.float32)
    return result


def swiglu(gate: F16, up: F16) -> F16:
    """FP16(silu(gate)*up)."""
    g = gate.astype(np.float32)
    silu = g / (np.float32(1) + exponential(-g))
    return _stored(silu * up.astype(np.float32))


def geglu(gate: F16, up: F16) -> F16:
    """FP16(gelu(gate)*up), GELU by tanh."""
    return _stored(_gelu(gate, "tanh") * up.astype(np.float32))


def soft_cap(x: F32, cap: float) -> F32:
    """tanh(x*(1/cap))*cap of finite FP32 values below 40*cap."""
    bound, one, two = np.float32(cap), np.float32(1), np.float32(2)
    y = x * (one / bound)
    size, z = np.abs(y), y * y
    c = coefficients("tanh_c").astype(np.float32)
    p = np.broadcast_to(c[0], x.shape)
    for term in c[1:]:
        p = p * z
        p = p + term
    small = y + (y * z) * p
    large = one - two / (exponential(size + size) + one)
    tanh = np.where(size < np.float32(0.625), small, np.where(y < 0, -large, large))
    result: F32 = tanh * bound
    return result


def relu(x: F16) -> F16:
    """x above 0, else +0."""
    return np.where(x > 0, x, np.float16(0)).astype(np.float16)


def gelu(x: F16, table: str) -> F16:
    """Piecewise linear, by table "tanh" or "erf" on [-8, 8); +0 below, x above."""
    return _stored(_gelu(x, table))


def _gelu(x: F16, table: str) -> F32:
    wide = x.astype(np.float32)
    inside = (wide >= -8) & (wide < 8)
    i = np.where(inside, np.floor(wide * np.float32(64)) + 512, 0).astype(np.int64)
    a, b = coefficients(f"gelu_{table}_a")[i], coefficients(f"gelu_{table}_b")[i]
    y = a * wide
    y = y + b
    result: F32 = np.where(inside, y, np.where(wide < 0, np.float32(0), wide))
    return result


def quantize_heads(x: F16, head_dim: int) -> tuple[NDArray[np.int8], F16]:
    """INT8 [rows, columns] with one scale per head, and the scales FP16 [rows, heads], max/127.
    A head with scale 0 has values 0."""
    wide = x.astype(np.float32).reshape(len(x), -1, head_dim)
    scales = _stored(np.abs(wide).max(axis=2) / np.float32(127))
    used = scales.astype(np.float32)[..., None]
    inverse = np.divide(np.float32(1), used, out=np.zeros_like(used), where=used != 0)
    values = np.clip(np.rint(wide * inverse), -127, 127)
    return values.astype(np.int8).reshape(x.shape), scales


def largest(x: F16) -> F32:
    """The largest magnitude of each row, FP32 [rows]; NaN left out."""
    found: F32 = np.nanmax(np.abs(x.astype(np.float32)), axis=1)
    return found


def quantize_rows(x: F16, top: F32) -> tuple[NDArray[np.int8], F32]:
    """INT8 [rows, columns] of rows whose largest magnitude is `top` FP32 [rows], and their scales
    FP32 [rows]."""
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top != 0)
    values = np.clip(np.rint(x.astype(np.float32) * inverse[:, None]), -127, 127)
    scales: F32 = top * (np.float32(1) / np.float32(127))
    return values.astype(np.int8), scales


def bfloat16(x: F32) -> F32:
    """Positive values of at most 2^24 rounded to eight significant bits, ties to even."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    rounded: F32 = np.ldexp(np.rint(mantissa * 256) / 256, exponent).astype(np.float32)
    return rounded


def attention(
    q: F16,
    k: F16,
    v: F16,
    visible: Sequence[int],
    scale: float,
    bias: F32 | None = None,
    cap: float = 0,
) -> F16:
    """One query q [head_dim] over the ascending positions `visible` of k and v [positions,
    head_dim]. The scores are capped if `cap` is not 0; then `bias` [len(visible)] is added."""
    rows = list(visible)
    scores = matmul(q[None], np.ascontiguousarray(k[rows].T))[0] * np.float32(scale)
    if cap:
        scores = soft_cap(scores, cap)
    if bias is not None:
        scores = scores + bias
    e = exponential(scores - scores.max()).astype(np.float16).astype(np.float32)
    numbers = np.array(rows)
    tiles, below, above = _sums_of(_TILE, numbers, e, e[:, None] * v[rows].astype(np.float32))
    chunks, below, above = _sums_of(_CHUNK // _TILE, tiles, below, above)
    _, below, above = _sums_of(len(chunks) + int(chunks[-1]), chunks, below, above)
    return _stored(above[0] / below[0])


def _sums_of(
    size: int, numbers: NDArray[np.int64], below: F32, above: F32
) -> tuple[NDArray[np.int64], F32, F32]:
    """Runs of values whose ascending numbers agree in floor(number/size), each summed sequentially
    from +0: their numbers, and the sums of `below` and of `above`."""
    runs, starts, counts = np.unique(numbers // size, return_index=True, return_counts=True)
    of_below = np.zeros(len(runs), np.float32)
    of_above = np.zeros((len(runs), above.shape[1]), np.float32)
    for step in range(int(counts.max())):
        longer = counts > step
        of_below[longer] = of_below[longer] + below[starts[longer] + step]
        of_above[longer] = of_above[longer] + above[starts[longer] + step]
    return runs, of_below, of_above
