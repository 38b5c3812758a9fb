"""Operations of a forward pass in NumPy float32 on whole rows, for calibration and for float
references. The boards' arithmetic is different: its order of sums is fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.numerics import gelu, silu, soft_cap
from lora_sdk.model import block
from lora_sdk.model import operations as ops
from lora_sdk.model.alibi import score_bias
from lora_sdk.model.rope import rope_table
from lora_sdk.model.spec import Activation, ModelConfig, SigmoidRouting

F32 = NDArray[np.float32]
Soft = Callable[[F32, F32, np.float32 | None], F32]
ATTENTION_ROWS = 256  # bounds the memory of scores


class Operations(Protocol):
    """The parts that differ between a plain float pass, a recording one and a rounding one."""

    def linear(self, x: F32, name: str, whole: F32 | None = None) -> F32:
        """x [rows, K] @ the matrix of this canonical name, plus its bias: [rows, N]. `whole`: the
        rows of which x are parts, where these have one scale together."""

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Causal attention: q [heads, T, head_dim], k and v [kv_heads, T, head_dim], all after
        RoPE. The result is [heads, T, head_dim]."""

    def store(self, x: F32) -> F32:
        """The value of an operation's result after it is stored."""

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter, None if the model has none."""


def norm(x: F32, op: ops.Norm, gamma: F32 | None, beta: F32 | None) -> F32:
    """LayerNorm or RMSNorm of rows x [rows, d]."""
    if op.kind == "layernorm":
        x = x - x.mean(axis=1, keepdims=True)
    y = rms_norm(x, op.eps, _factors(gamma, op.one_plus))
    if op.numerator != 1:
        y = y * np.float32(op.numerator)
    return y if beta is None else y + beta


def _factors(gamma: F32 | None, one_plus: bool) -> F32 | None:
    """What an RMSNorm multiplies by."""
    return gamma + np.float32(1) if one_plus and gamma is not None else gamma


def rms_norm(x: F32, eps: float, gamma: F32 | None) -> F32:
    """RMSNorm of rows x [rows, d]."""
    y: F32 = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(eps))
    return y if gamma is None else y * gamma


def activate(x: F32, config: ModelConfig) -> F32:
    """The activation of an MLP without a gate."""
    if config.activation in ("relu", "relu2"):
        positive: F32 = np.maximum(x, np.float32(0))
        return positive * positive if config.activation == "relu2" else positive
    return gelu(x, config.activation.removeprefix("gelu_"))


def gate(g: F32, u: F32, kind: Activation = "silu") -> F32:
    """silu(g)*u, or gelu(g)*u."""
    return (silu(g) if kind == "silu" else gelu(g, kind.removeprefix("gelu_"))) * u


def clamped(g: F32, u: F32, limit: float, alpha: float) -> F32:
    """The clamped SwiGLU."""
    g, u = np.minimum(g, np.float32(limit)), np.clip(u, np.float32(-limit), np.float32(limit))
    y: F32 = g / (np.float32(1) + np.exp(-(g * np.float32(alpha)))) * (u + np.float32(1))
    return y


def rotate(x: F32, table: F32) -> F32:
    """RoPE of heads x [heads, T, head_dim] at positions 0..T-1; `table` is rope_table's."""
    half = x.shape[2] // 2
    cos, sin = table[: x.shape[1], 0], table[: x.shape[1], 1]
    a, b = x[..., :half], x[..., half:]
    turned: F32 = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)
    return turned


def attention(
    q: F32,
    k: F32,
    v: F32,
    scale: np.float32,
    soft: Soft,
    bias: F32 | None = None,
    window: int = 0,
    cap: float = 0,
    sinks: F32 | None = None,
) -> F32:
    """Causal attention of q [heads, T, head_dim] over k and v [kv_heads, T, head_dim], some rows
    of a head at a time. `soft` computes the weighted sum of v from scores [rows, positions].
    `bias` [heads, T] is added to them by position: ALiBi's, which moves all scores of a row alike
    where it is taken from another row. Rows see `window` positions, 0 for all. `cap` bounds the
    scores softly, 0: not. `sinks` [heads]: logits that weigh no position."""
    sharing, count = len(q) // len(k), q.shape[1]
    y = np.empty((len(q), count, v.shape[2]), np.float32)
    for head_index, start in product(range(len(q)), range(0, count, ATTENTION_ROWS)):
        stop = min(count, start + ATTENTION_ROWS)
        s = (q[head_index, start:stop] @ k[head_index // sharing, :stop].T) * scale
        if cap:
            s = soft_cap(s, np.float32(cap))
        if bias is not None:
            s = s + bias[head_index, :stop]
        row, position = np.ogrid[start:stop, :stop]
        s[(position > row) | ((position <= row - window) if window else False)] = -np.inf
        sink = None if sinks is None else sinks[head_index]
        y[head_index, start:stop] = soft(s, v[head_index // sharing, :stop], sink)
    return y


def head_bias(config: ModelConfig, positions: int) -> F32 | None:
    """ALiBi's bias [heads, positions] for `attention`; None without."""
    return None if config.alibi is None else score_bias(config, positions)


def softmax_times(s: F32, v: F32, sink: np.float32 | None = None) -> F32:
    """softmax(s) @ v: scores [rows, positions], -inf where masked, and v [positions, n]. `sink`:
    one more logit, without a v."""
    top = s.max(axis=1, keepdims=True)
    e = np.exp(s - top)
    weighted: F32 = (e @ v) / (e.sum(axis=1, keepdims=True) + sink_weight(sink, top))
    return weighted


def sink_weight(sink: np.float32 | None, top: F32) -> F32:
    """What a sink adds to the sum of weights whose scores are at most `top` [rows, 1]."""
    return np.zeros_like(top) if sink is None else np.exp(sink - top)


def rows_of(heads: F32) -> F32:
    """[heads, T, head_dim] -> [T, heads*head_dim]."""
    rows: F32 = np.ascontiguousarray(heads.transpose(1, 0, 2).reshape(heads.shape[1], -1))
    return rows


def heads_of(x: F32, head_dim: int) -> F32:
    """[T, heads*head_dim] -> [heads, T, head_dim]."""
    heads: F32 = np.ascontiguousarray(x.reshape(len(x), -1, head_dim).transpose(1, 0, 2))
    return heads


class _Pass:
    """Rows of one window during a pass. By buffer: an array for each tensor that a matmul has
    computed."""

    def __init__(
        self, config: ModelConfig, operations: Operations, positions: F32 | None = None
    ) -> None:
        self.config = config
        self.operations = operations
        self.positions = positions
        self.rows: dict[str, tuple[F32, ...]] = {}

    def run(self, operations: Iterable[ops.Operation]) -> None:
        """Run the operations in order."""
        for operation in operations:
            ops.row(FLOATS, operation)(self, operation)

    def read(self, buffer: ops.Buffer) -> F32:
        """The rows [T, K] of a buffer of one part."""
        (x,) = self.rows[buffer.name]
        return x

    def keep(self, buffer: ops.Buffer, *parts: F32) -> None:
        """Set the stored content of a buffer."""
        self.rows[buffer.name] = tuple(self.operations.store(part) for part in parts)

    def embed(self, embed: ops.Embed) -> None:
        if embed.scale != 1:
            self.keep(embed.target, self.read(embed.target) * np.float32(embed.scale))
        if embed.positions:
            self.add_position(embed)

    def add_position(self, operation: ops.Embed | ops.AddPosition) -> None:
        assert self.positions is not None  # the caller provides them
        self.keep(operation.target, self.read(operation.target) + self.positions)

    def norm(self, op: ops.Norm) -> None:
        vectors = {name: self.operations.vector(f"{op.name}.{name}") for name in op.vectors}
        y = norm(self.rows[op.source.name][0], op, vectors.get("gamma"), vectors.get("beta"))
        self.keep(op.target, y)

    def matmul(self, op: ops.Matmul) -> None:
        x = self.read(op.source)
        self.rows[op.target.name] = tuple(self.operations.linear(x, name) for name in op.tensors)

    def join_heads(self, op: ops.JoinHeads) -> None:
        """Of latent attention: k behind q, v behind these, or the output's columns of v."""
        latent, size = self.config.latent, self.config.head_dim
        assert latent is not None
        if op.part == "y":
            heads = heads_of(self.read(op.source), size)
            self.keep(op.target, rows_of(heads[..., : latent.values]))
            return
        k, v = self.rows[op.source.name]
        made, far = np.zeros((self.config.kv_heads, len(k), size), np.float32), size // 2
        if op.part == "v":
            made[..., : latent.values] = heads_of(v, latent.values)
        else:
            assert op.shared is not None
            turned, own = self.rows[op.shared.name][1], heads_of(k, size - latent.rope)
            pairs, rest = latent.rope // 2, own.shape[2] // 2
            made[..., :pairs], made[..., far : far + pairs] = turned[:, :pairs], turned[:, pairs:]
            made[..., pairs:far], made[..., far + pairs :] = own[..., :rest], own[..., rest:]
        self.rows[op.target.name] += (rows_of(made),)

    def norm_heads(self, op: ops.NormHeads) -> None:
        parts = list(self.rows[op.target.name])
        index, size = "qk".index(op.part), self.config.head_dim
        x = parts[index] if op.whole else parts[index].reshape(-1, size)
        gamma = _factors(self.operations.vector(op.tensor), op.one_plus)
        y = rms_norm(x, self.config.norm_eps, gamma)
        parts[index] = self.operations.store(y.reshape(parts[index].shape))
        self.rows[op.target.name] = tuple(parts)

    def rope(self, op: ops.Rope) -> None:
        q, k, v = self.rows[op.target.name]
        table = rope_table(self.config, len(q), op.table == "rope_local")
        self.keep(op.target, *(self._rotated(x, table) for x in (q, k)))
        self.rows[op.target.name] += (v,)

    def _rotated(self, x: F32, table: F32) -> F32:
        return rows_of(rotate(heads_of(x, self.config.head_dim), table))

    def attend(self, op: ops.Attend) -> None:
        assert op.layer is not None
        q, k, v = (heads_of(x, self.config.head_dim) for x in self.rows[op.source.name])
        self.keep(op.target, rows_of(self.operations.attend(q, k, v, op.layer)))

    def activate(self, op: ops.Activate) -> None:
        if op.gated:
            g, u = self.rows[op.source.name]
            g = g * np.float32(op.scale)
            y = clamped(g, u, op.limit, op.alpha) if op.limit else gate(g, u, op.kind)
            self.keep(op.target, y)
        else:
            self.keep(op.target, activate(self.read(op.source), self.config))

    def elementwise(self, op: ops.Elementwise) -> None:
        y = op.floats(*map(self.read, list(op.operands.values()) or [op.target]))
        if op.target.results:
            self.rows[op.target.name] = (y,)
        else:
            self.keep(op.target, y)

    def pack(self, op: ops.PackSelected) -> None:
        self.rows[op.target.name] = self.rows[op.source.name]

    def route(self, op: ops.Route) -> None:
        """The numbers of the chosen experts [T, chosen] and their weights, by ascending number."""
        logits = self.rows[op.source.name][0]
        if op.sigmoid is not None:
            chosen, taken = self._route_sigmoid(logits, op, op.sigmoid)
            self.rows[op.target.name] = chosen.astype(np.float32), taken
            return
        choice = _in_groups(logits, op.groups, op.taken, lambda groups: groups.max(axis=2))
        order = np.argsort(-choice, axis=1, kind="stable")[:, : op.chosen]
        chosen = np.sort(order, axis=1)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        taken = np.take_along_axis(p, chosen, 1)
        total = (taken if op.renormalize else p).sum(axis=1, keepdims=True)
        weights = taken / total * np.float32(op.factor)
        self.rows[op.target.name] = chosen.astype(np.float32), weights

    def _route_sigmoid(
        self, logits: F32, op: ops.Route, how: SigmoidRouting
    ) -> tuple[NDArray[np.intp], F32]:
        """The numbers of the chosen experts and their weights, both [T, chosen]."""
        bias = self.operations.vector(op.bias)
        assert bias is not None
        scores = np.float32(1) / (np.float32(1) + np.exp(-logits))
        choice = _in_groups(
            scores + bias, how.groups, how.taken,
            lambda groups: np.sort(groups, axis=2)[..., -2:].sum(axis=2),
        )  # fmt: skip
        order = np.argsort(-choice, axis=1, kind="stable")
        chosen = np.sort(order[:, : op.chosen], axis=1)
        taken = np.take_along_axis(scores, chosen, 1)
        if op.renormalize:
            taken = taken / (taken.sum(axis=1, keepdims=True) + np.float32(how.least))
        return chosen, taken * np.float32(how.factor)

    def experts(self, op: ops.ExpertMatmul) -> None:
        """Rows by the matrices of their experts: [T, chosen*N] of each part, or a sum [T, N]."""
        chosen, weights = self.rows[op.chosen_from.name]
        x, each = self.read(op.source), len(op.tensors) // op.experts
        found: list[F32] = []
        for expert in np.unique(chosen).astype(int):
            rows, slots = np.nonzero(chosen == expert)
            for part, name in enumerate(op.tensors[expert * each : (expert + 1) * each]):
                if op.combine:
                    own = x.reshape(*chosen.shape, op.k)[rows, slots]
                    y = self.operations.linear(own, name, x[rows]) * weights[rows, slots, None]
                else:
                    y = self.operations.linear(x[rows], name)
                if part == len(found):
                    shape = (len(x),) if op.combine else chosen.shape
                    found.append(np.zeros((*shape, y.shape[1]), np.float32))
                if op.combine:
                    found[part][rows] += y
                else:
                    found[part][rows, slots] = y
        self.rows[op.target.name] = tuple(part.reshape(len(x), -1) for part in found)

    def refuse(self, op: ops.Operation) -> None:
        raise ModelError(
            "lora quantize does not compute layers without attention; open a folder that another"
            " tool has quantized"
        )

    def add_gated(self, op: ops.AddGated) -> None:
        gate = self.rows[op.gate.name][1]
        share = np.float32(1) / (np.float32(1) + np.exp(-gate))
        self.keep(op.target, self.read(op.target) + share * self.read(op.source))

    def nothing(self, op: ops.Operation) -> None:
        """Rows are unchanged."""


def _in_groups(values: F32, groups: int, taken: int, best: Callable[[F32], F32]) -> F32:
    """[T, experts], -inf in the groups that a row does not take: those of the smaller `best`."""
    if groups == 1:
        return values
    found = values.reshape(len(values), groups, -1).copy()
    left = np.argsort(-best(found), axis=1, kind="stable")[:, taken:]
    np.put_along_axis(found, left[..., None], np.float32(-np.inf), 1)
    flat: F32 = found.reshape(values.shape)
    return flat


FLOATS: dict[type[ops.Operation], Callable[[_Pass, Any], None]] = {
    ops.Embed: _Pass.embed,
    ops.AddPosition: _Pass.add_position,
    ops.Norm: _Pass.norm,
    ops.Matmul: _Pass.matmul,
    ops.NormHeads: _Pass.norm_heads,
    ops.Rope: _Pass.rope,
    ops.StoreKv: _Pass.nothing,
    ops.Attend: _Pass.attend,
    ops.Activate: _Pass.activate,
    ops.Elementwise: _Pass.elementwise,
    ops.PackSelected: _Pass.pack,
    ops.Argmax: _Pass.nothing,
    ops.Route: _Pass.route,
    ops.ExpertMatmul: _Pass.experts,
    ops.AddGated: _Pass.add_gated,
    ops.Recur: _Pass.refuse,
    ops.NormGroups: _Pass.refuse,
    ops.GateHeads: _Pass.refuse,
    ops.JoinHeads: _Pass.join_heads,
}


def run_layer(x: F32, layer: int, config: ModelConfig, operations: Operations) -> F32:
    """One layer of one window x [T, hidden]."""
    described, at = block.describe(config), _Pass(config, operations)
    at.rows[described.stream.name] = (x,)
    at.run(described.layers[layer])
    return at.read(described.stream)


def embed(x: F32, config: ModelConfig, positions: F32 | None, operations: Operations) -> F32:
    """The input of the first layer [T, hidden], from rows x [T, E] of the token table and rows of
    the position table, if there is one."""
    described, at = block.describe(config), _Pass(config, operations, positions)
    first = described.before[0]
    assert isinstance(first, ops.Embed)
    at.rows[first.target.name] = (x,)
    at.run(described.before)
    return at.read(described.stream)


def head(x: F32, config: ModelConfig, operations: Operations) -> F32:
    """Logits [T, vocabulary] from the outputs of the last layer."""
    return _after(x, config, operations, True).read(block.LOGITS)


def head_input(x: F32, config: ModelConfig, operations: Operations) -> F32:
    """The input of lm_head [T, E] from the outputs of the last layer."""
    lm_head = block.describe(config).matmuls[-1]
    return _after(x, config, operations, False).read(lm_head.source)


def _after(x: F32, config: ModelConfig, operations: Operations, lm_head: bool) -> _Pass:
    """The operations after the layers, up to lm_head or with it and what follows."""
    described, at = block.describe(config), _Pass(config, operations)
    at.rows[described.stream.name] = (x,)
    end = described.after.index(described.matmuls[-1])
    at.run(described.after if lm_head else described.after[:end])
    return at
