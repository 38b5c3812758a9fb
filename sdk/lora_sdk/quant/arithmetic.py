"""Operations of a forward pass in NumPy's float32, whole rows at once: for calibration and for
float references. Not the arithmetic of the boards, whose order of sums is a contract."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.numerics import gelu, silu
from lora_sdk.model.rope import rope_table
from lora_sdk.model.spec import ModelConfig

F32 = NDArray[np.float32]
Soft = Callable[[F32, F32], F32]
ATTENTION_ROWS = 256  # bounds the scores that are held at once


class Operations(Protocol):
    """What differs between a plain float pass, one that records and one that rounds."""

    def linear(self, x: F32, name: str) -> F32:
        """x [rows, K] times the matrix of this canonical name, its bias added: [rows, N]."""

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Causal attention: q [heads, T, head_dim], k and v [kv_heads, T, head_dim], all behind
        RoPE; the result is [heads, T, head_dim]."""

    def store(self, x: F32) -> F32:
        """What an operation's result becomes when it is kept."""

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter; None where the model has none."""


def norm(x: F32, config: ModelConfig, gamma: F32 | None, beta: F32 | None) -> F32:
    """LayerNorm or RMSNorm of rows x [rows, d]."""
    eps = np.float32(config.norm_eps)
    if config.norm == "layernorm":
        x = x - x.mean(axis=1, keepdims=True)
    y: F32 = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + eps)
    if gamma is not None:
        y = y * gamma
    if beta is not None:
        y = y + beta
    return y


def activate(x: F32, config: ModelConfig) -> F32:
    """The activation of a product that is not gated."""
    if config.activation == "relu":
        positive: F32 = np.maximum(x, np.float32(0))
        return positive
    return gelu(x, config.activation.removeprefix("gelu_"))


def gate(g: F32, u: F32) -> F32:
    """silu(g)*u."""
    return silu(g) * u


def rotate(x: F32, table: F32) -> F32:
    """RoPE of heads x [heads, T, head_dim] at positions 0..T-1; `table` is rope_table's."""
    half = x.shape[2] // 2
    cos, sin = table[: x.shape[1], 0], table[: x.shape[1], 1]
    a, b = x[..., :half], x[..., half:]
    turned: F32 = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)
    return turned


def attention(q: F32, k: F32, v: F32, scale: np.float32, soft: Soft) -> F32:
    """Causal attention of q [heads, T, head_dim] over k and v [kv_heads, T, head_dim], some rows
    of a head at a time: `soft` weighs v by scores [rows, positions]."""
    sharing, count = len(q) // len(k), q.shape[1]
    y = np.empty((len(q), count, v.shape[2]), np.float32)
    for head_index, start in product(range(len(q)), range(0, count, ATTENTION_ROWS)):
        stop = min(count, start + ATTENTION_ROWS)
        s = (q[head_index, start:stop] @ k[head_index // sharing, :stop].T) * scale
        hidden = ~np.tri(stop - start, dtype=bool)
        s[:, start:][hidden] = -np.inf
        y[head_index, start:stop] = soft(s, v[head_index // sharing, :stop])
    return y


def softmax_times(s: F32, v: F32) -> F32:
    """softmax(s) @ v: scores [rows, positions], -inf where not visible, times [positions, n]."""
    e = np.exp(s - s.max(axis=1, keepdims=True))
    weighted: F32 = (e @ v) / e.sum(axis=1, keepdims=True)
    return weighted


def heads_of(x: F32, head_dim: int) -> F32:
    """[T, heads*head_dim] -> [heads, T, head_dim]."""
    heads: F32 = np.ascontiguousarray(x.reshape(len(x), -1, head_dim).transpose(1, 0, 2))
    return heads


def block(x: F32, layer: int, config: ModelConfig, operations: Operations) -> F32:
    """One transformer layer of one window x [T, hidden], pre- or post-norm."""
    for branch, name in ((_attention, "attn_norm"), (_mlp, "mlp_norm")):
        full = f"layer.{layer}.{name}"
        if config.norm_first:
            x = operations.store(
                x + branch(_norm(x, full, config, operations), layer, config, operations)
            )
        else:
            x = operations.store(x + branch(x, layer, config, operations))
            x = _norm(x, full, config, operations)
    return x


def embed(x: F32, config: ModelConfig, positions: F32 | None, operations: Operations) -> F32:
    """What enters the first layer [T, hidden], of rows x [T, E] of the token table and of the
    position table, where there is one."""
    if config.embed_dim != config.hidden:
        x = operations.linear(x, "project_in")
    if positions is not None:
        x = operations.store(x + positions)
    return x


def head(x: F32, config: ModelConfig, operations: Operations) -> F32:
    """Logits [T, vocabulary] of the last layer's outputs."""
    return operations.linear(head_input(x, config, operations), "lm_head")


def head_input(x: F32, config: ModelConfig, operations: Operations) -> F32:
    """What lm_head reads [T, E] of the last layer's outputs."""
    if config.final_norm:
        x = _norm(x, "final_norm", config, operations)
    if config.embed_dim != config.hidden:
        x = operations.linear(x, "project_out")
    return x


def _norm(x: F32, name: str, config: ModelConfig, operations: Operations) -> F32:
    gamma, beta = operations.vector(f"{name}.gamma"), operations.vector(f"{name}.beta")
    return operations.store(norm(x, config, gamma, beta))


def _attention(x: F32, layer: int, config: ModelConfig, operations: Operations) -> F32:
    name = f"layer.{layer}"
    q, k, v = (heads_of(operations.linear(x, f"{name}.{part}"), config.head_dim) for part in "qkv")
    if config.rope is not None:
        table = rope_table(config, len(x))
        q, k = operations.store(rotate(q, table)), operations.store(rotate(k, table))
    y = operations.store(operations.attend(q, k, v, layer))
    flat = y.transpose(1, 0, 2).reshape(len(x), -1)
    return operations.linear(np.ascontiguousarray(flat), f"{name}.o")


def _mlp(x: F32, layer: int, config: ModelConfig, operations: Operations) -> F32:
    name = f"layer.{layer}"
    up = operations.linear(x, f"{name}.up")
    gated = config.gated
    inner = gate(operations.linear(x, f"{name}.gate"), up) if gated else activate(up, config)
    return operations.linear(operations.store(inner), f"{name}.down")
