"""What stands in attention's place, from the number rules alone (docs/numbers.md, 3.17, 3.18 and
3.20): of a whole text, position after position."""

from __future__ import annotations

import math

import numpy as np

from tests.oracle.arithmetic import F32, exp, silu, squares, store

ONE = np.float32(1)


def convolve(x: F32, taps: F32) -> F32:
    """[positions, columns]: the weights' last row meets the position itself."""
    out = np.zeros_like(x)
    for p in range(len(x)):
        for tap, weights in enumerate(taps):
            source = p - (len(taps) - 1) + tap
            if source >= 0:
                out[p] = out[p] + weights * x[source]
    return out


def short_conv(b: F32, c: F32, x: F32, taps: F32) -> F32:
    """What the output's matmul reads."""
    return store(c * convolve(store(b * x), taps))


def gated_delta(
    parts: dict[str, F32], taps: dict[str, F32], a_log: F32, dt_bias: F32, gamma: F32,
    key_heads: int, eps: float,
) -> F32:  # fmt: skip
    """What the output's matmul reads. `parts`: q, k, v, z, a and b [positions, columns]."""
    mixed = {name: silu(convolve(parts[name], taps[name])) for name in "qkv"}
    heads, positions = len(a_log), len(parts["q"])
    size, width = parts["q"].shape[1] // key_heads, parts["v"].shape[1] // heads
    out = np.zeros((positions, heads * width), np.float32)
    for head in range(heads):
        key = head // (heads // key_heads)
        keys, values = slice(key * size, (key + 1) * size), slice(head * width, (head + 1) * width)
        q = unit(mixed["q"][:, keys]) * np.float32(1 / math.sqrt(size))
        k = unit(mixed["k"][:, keys])
        beta = ONE / (ONE + exp(-parts["b"][:, head]))
        grown = np.array([softplus(t) for t in parts["a"][:, head] + dt_bias[head]], np.float32)
        decay = exp(-exp(a_log[head : head + 1]) * grown)
        o = scan(q, k, mixed["v"][:, values], beta, decay)
        total = np.zeros(positions, np.float32)
        for j in range(width):
            total = total + o[:, j] * o[:, j]
        r = ONE / np.sqrt(total / np.float32(width) + np.float32(eps))
        out[:, values] = (o * r[:, None]) * gamma * silu(parts["z"][:, values])
    return store(out)


def scan(q: F32, k: F32, v: F32, beta: F32, decay: F32) -> F32:
    """One head; the state is [keys, values]."""
    state = np.zeros((q.shape[1], v.shape[1]), np.float32)
    out = np.zeros_like(v)
    for p in range(len(q)):
        state = state * decay[p]
        held = np.zeros(v.shape[1], np.float32)
        for i, row in enumerate(state):
            held = held + row * k[p, i]
        change = (v[p] - held) * beta[p]
        for i in range(len(state)):
            state[i] = state[i] + k[p, i] * change
            out[p] = out[p] + state[i] * q[p, i]
    return out


def unit(x: F32) -> F32:
    """Rows over their lengths."""
    total = np.zeros(len(x), np.float32)
    for column in x.T:
        total = total + column * column
    found: F32 = x * (ONE / np.sqrt(total + np.float32(1e-6)))[:, None]
    return found


def softplus(t: np.float32) -> np.float32:
    """ln(1 + exp(t)) by the system's float64 logarithm: FP32 hides its last bits."""
    return t if t > 20 else np.float32(math.log(1 + float(exp(np.array([t]))[0])))


def selective_scan(
    parts: dict[str, F32], taps: dict[str, F32], biases: dict[str, F32], a_log: F32, dt_bias: F32,
    skip: F32, groups: int, limits: tuple[float, float], factors: dict[str, float],
) -> F32:  # fmt: skip
    """What the norm, or the output's matmul, reads. `parts`: C, B, x, dt and z by the letters q, k,
    v, a and z, [positions, columns]; `factors` by the same."""
    by = {letter: np.float32(factor) for letter, factor in factors.items()}
    c, b, x = (silu(convolve(parts[i], taps[i]) * by[i] + biases[i]) for i in "qkv")
    heads, positions = len(a_log), len(x)
    width, size = x.shape[1] // heads, b.shape[1] // groups
    low, high = (np.float32(limit) for limit in limits)
    out = np.zeros_like(x)
    for head in range(heads):
        group = head // (heads // groups)
        own = slice(head * width, (head + 1) * width)
        keys = slice(group * size, (group + 1) * size)
        times = [softplus(t) for t in parts["a"][:, head] * by["a"] + dt_bias[head]]
        step = np.array([min(max(t, low), high) for t in times], np.float32)
        decay = exp(-exp(a_log[head : head + 1]) * step)
        state = np.zeros((size, width), np.float32)
        for p in range(positions):
            v, total = x[p, own] * step[p], np.zeros(width, np.float32)
            for i in range(size):
                state[i] = state[i] * decay[p] + b[p, keys][i] * v
                total = total + state[i] * c[p, keys][i]
            out[p, own] = total + skip[head] * x[p, own]
    return store(out * silu(parts["z"] * by["z"]))


def norm_groups(y: F32, gamma: F32, groups: int, heads: int, eps: float) -> F32:
    """Each group by the sums of the columns that go with each query head of `heads`."""
    each = heads // groups
    out = np.zeros_like(y)
    for own in np.split(np.arange(y.shape[1]), groups):
        total = np.zeros(len(y), np.float32)
        for part in np.split(y[:, own], each, axis=1):
            total = total + squares(part)
        r = ONE / np.sqrt(total / np.float32(len(own)) + np.float32(eps))
        out[:, own] = (y[:, own] * r[:, None]) * gamma[own]
    return store(out)
