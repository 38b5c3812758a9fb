"""The whole forward pass of a sequence, from canonical FP16 weights to FP32 logits
(docs/numbers.md, 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.spec import (
    ExpertConfig,
    LatentConfig,
    ModelConfig,
    RecurrentConfig,
    RopeConfig,
    SigmoidRouting,
)
from tests.oracle.arithmetic import (
    F32,
    activate,
    attend,
    bf16,
    exp,
    gelu,
    layer_norm,
    norm_heads,
    norm_row,
    product,
    rms_norm,
    silu,
    soft_cap,
    store,
)
from tests.oracle.recurrent import gated_delta, norm_groups, selective_scan, short_conv

Weights = dict[str, NDArray[np.float16]]


def load_weights(checkpoint: Checkpoint, names: Iterable[str] | None = None) -> Weights:
    """All tensors, or the named ones, by canonical name, unsharded."""
    read = {1: checkpoint.vector, 2: checkpoint.matrix}
    return {
        name: checkpoint.table(name)
        if name.startswith("embed.")
        else read[len(checkpoint.shape(name))](name)
        for name in (checkpoint.names if names is None else names)
    }


class Oracle:
    """`Oracle(config, weights).logits(tokens)`."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.float16]]) -> None:
        self.config = config
        self.weights = {name: array.astype(np.float32) for name, array in weights.items()}

    def logits(self, tokens: Sequence[int] | NDArray[np.integer[Any]]) -> F32:
        """FP32 [len(tokens), vocabulary]: row p predicts the token after tokens[: p + 1]."""
        with np.errstate(over="ignore", invalid="ignore"):
            logits = self._sum(self.final(tokens), "lm_head")
            scale, cap = self.config.logit_scale, self.config.logit_cap
            logits = logits if scale == 1 else logits * np.float32(scale)
            return soft_cap(logits, cap) if cap else logits

    def final(self, tokens: Sequence[int] | NDArray[np.integer[Any]]) -> F32:
        """FP16 values [len(tokens), embed_dim] as FP32: what lm_head reads."""
        with np.errstate(over="ignore", invalid="ignore"):
            x = self._embed(np.asarray(tokens))
            for layer in range(self.config.layers):
                x = self._block(x, layer)
            if self.config.final_norm:
                x = self._norm(x, "final_norm")
            if "project_out" in self.weights:
                x = self._linear(x, "project_out")
            return x

    def _embed(self, tokens: NDArray[np.int64]) -> F32:
        x = self.weights["embed.token"][tokens]
        stream = np.float32(self.config.stream_scale)
        if self.config.embed_scale != 1:
            x = store(x * (np.float32(self.config.embed_scale) * stream))
        if "project_in" in self.weights:
            x = self._linear(x, "project_in")
        if self.config.position_rows:
            positions = np.arange(len(tokens)) + self.config.position_offset
            x = store(x + self.weights["embed.position"][positions])
        if self.config.embed_norm:
            x = self._norm(x, "embed_norm")
        return x

    def _block(self, x: F32, layer: int) -> F32:
        """Pre- or post-norm: the norm comes before the branch or after its residual. Parallel: both
        branches read the block's input, after one norm or two."""
        if self.config.residual != "sequential":
            first = self._norm(x, f"layer.{layer}.attn_norm")
            two = self.config.residual == "parallel_two_norms"
            second = self._norm(x, f"layer.{layer}.mlp_norm") if two else first
            return self._add(self._add(x, self._attention(first, layer)), self._mlp(second, layer))
        attention, recurrence, mlp = self.config.mixer_scales
        beside = self.config.recurrent is not None and self.config.recurrent.beside
        mixer = recurrence if self.config.recurs(layer) else attention
        if beside:
            u = self._norm(x, f"layer.{layer}.attn_norm")
            x = self._add(x, self._own_attention(u, layer), attention)
            x = self._add(x, self._recurrence(u, layer), recurrence)
        for branch, kind, own in ((self._attention, "attn", mixer), (self._mlp, "mlp", mlp)):
            name = f"layer.{layer}.{kind}"
            left_out = self.config.without_mixer if kind == "attn" else self.config.without_mlp
            if layer in left_out or (kind == "attn" and beside):
                continue
            if not self.config.norm_first:
                x = self._norm(self._add(x, branch(x, layer)), f"{name}_norm")
                continue
            alone = self.config.branch_norms == "alone"
            y = branch(x if alone else self._norm(x, f"{name}_norm"), layer)
            if self.config.branch_norms != "none":
                y = self._branch_norm(y, f"{name}_post_norm")
            x = self._add(x, y, own)
        return x

    def _add(self, x: F32, y: F32, own: float = 1.0) -> F32:
        """The residual: a branch's output, scaled where the model says so, is added."""
        scale = self.config.branch_scale * own
        if self.config.branch_norms == "none":
            scale *= self.config.stream_scale
        return store(x + (y if scale == 1 else y * np.float32(scale)))

    def _norm(self, x: F32, name: str) -> F32:
        if self.config.norm == "rmsnorm":
            eps = np.float32(self.config.norm_eps) * np.float32(self.config.stream_scale) ** 2
            return rms_norm(x, self._gamma(name, x.shape[1]), eps)
        gamma = self.weights.get(f"{name}.gamma", np.ones(x.shape[1], np.float32))
        beta = self.weights.get(f"{name}.beta", np.zeros(x.shape[1], np.float32))
        return layer_norm(x, gamma, beta, self.config.norm_eps)

    def _gamma(self, name: str, count: int) -> F32:
        """What an RMSNorm multiplies by."""
        gamma = self.weights.get(f"{name}.gamma", np.ones(count, np.float32))
        return np.float32(1) + gamma if self.config.one_plus else gamma

    def _branch_norm(self, x: F32, name: str) -> F32:
        """The norm of a branch's output, which is not scaled; its result is."""
        gamma, config = self._gamma(name, x.shape[1]), self.config
        return rms_norm(x, gamma, config.norm_eps, config.stream_scale)

    def _product(self, x: F32, name: str) -> F32:
        """Matmul of x and a matrix in FP32, without its bias."""
        return product(x, self.weights[name])

    def _sum(self, x: F32, name: str) -> F32:
        """Matmul of x and a matrix in FP32, with its bias."""
        total = self._product(x, name)
        if f"{name}.bias" in self.weights:
            total = total + self.weights[f"{name}.bias"]
        return total

    def _linear(self, x: F32, name: str) -> F32:
        return store(self._sum(x, name))

    def _recurrence(self, x: F32, layer: int) -> F32:
        """What stands in attention's place."""
        config, name = self.config, f"layer.{layer}.mix"
        recurrent = config.recurrent
        assert recurrent is not None
        if recurrent.kind == "short_conv":
            b, c, own = (self._linear(x, f"{name}.{part}") for part in "bcx")
            return self._linear(short_conv(b, c, own, self.weights[f"{name}.taps.v"]), f"{name}.o")
        if recurrent.kind == "selective_scan":
            return self._linear(self._scan(x, name, recurrent), f"{name}.o")
        mixed = gated_delta(
            {part: self._linear(x, f"{name}.{part}") for part in "qkvzab"},
            {part: self.weights[f"{name}.taps.{part}"] for part in "qkv"},
            *(self.weights[f"{name}.{part}"] for part in ("a_log", "dt_bias", "norm.gamma")),
            recurrent.key_heads,
            config.norm_eps,
        )
        return self._linear(mixed, f"{name}.o")

    def _scan(self, x: F32, name: str, recurrent: RecurrentConfig) -> F32:
        taps = {part: self.weights[f"{name}.taps.{part}"] for part in "qkv"}
        none = np.float32(0)
        mixed = selective_scan(
            {part: self._linear(x, f"{name}.{part}") for part in "qkvaz"},
            taps,
            {part: self.weights.get(f"{name}.taps.{part}.bias", none) for part in "qkv"},
            *(self.weights[f"{name}.{part}"] for part in ("a_log", "dt_bias", "d")),
            recurrent.key_heads,
            recurrent.limits,
            dict(zip("qkvaz", recurrent.factors, strict=True)),
        )
        if not recurrent.normed:
            return mixed
        gamma, config = self.weights[f"{name}.norm.gamma"], self.config
        return norm_groups(mixed, gamma, recurrent.key_heads, config.heads, config.norm_eps)

    def _attention(self, x: F32, layer: int) -> F32:
        if self.config.recurs(layer):
            return self._recurrence(x, layer)
        return self._own_attention(x, layer)

    def _own_attention(self, x: F32, layer: int) -> F32:
        config, name = self.config, f"layer.{layer}"
        if config.latent is not None:
            q, k, v = self._latent(x, name, config.latent)
        else:
            q, k, v = (self._heads(self._linear(x, f"{name}.{part}")) for part in "qkv")
        if config.head_norms != "none":
            norm = norm_heads if config.head_norms == "heads" else norm_row
            gammas = (self._gamma(f"{name}.{part}_norm", 0) for part in "qk")
            q, k = (
                norm(part, gamma, config.norm_eps)
                for part, gamma in zip((q, k), gammas, strict=True)
            )
        if config.rope is not None and layer not in config.unrotated:
            rope = config.rope
            if layer in config.local_layers:
                rope = config.local_rope
            q, k = (rotate(part, rope) for part in (q, k))
        group = config.heads // config.kv_heads
        heads = [
            self._attend(layer, h, q[h], k[h // group], v[h // group]) for h in range(config.heads)
        ]
        if config.latent is not None:
            heads = [own[:, : config.latent.values] for own in heads]
        y = np.concatenate(heads, axis=1)
        if config.output_gate:
            one = np.float32(1)
            y = store(y * (one / (one + exp(-self._linear(x, f"{name}.q_gate")))))
        return self._linear(y, f"{name}.o")

    def _latent(self, x: F32, name: str, latent: LatentConfig) -> tuple[F32, F32, F32]:
        """q, k and v [heads, positions, head_dim], k with the shared key in each head, v with zeros
        behind its own columns."""
        count, size = self.config.heads, self.config.head_dim
        normed = x
        if latent.q:
            gamma = self.weights[f"{name}.q_a_norm.gamma"]
            normed = rms_norm(self._linear(x, f"{name}.q_a"), gamma, latent.eps)
        gamma = self.weights[f"{name}.kv_a_norm.gamma"]
        b = rms_norm(self._linear(x, f"{name}.kv_a"), gamma, latent.eps)
        first, second = np.split(self._linear(x, f"{name}.k_rope"), 2, axis=1)
        n = np.split(self._linear(b, f"{name}.k"), 2 * count, axis=1)
        z = np.split(self._linear(b, f"{name}.v"), count, axis=1)
        none = np.zeros((len(x), size - latent.values), np.float32)
        k = [np.hstack([first, n[2 * h], second, n[2 * h + 1]]) for h in range(count)]
        v = [np.hstack([own, none]) for own in z]
        return self._heads(self._linear(normed, f"{name}.q")), np.stack(k), np.stack(v)

    def _attend(self, layer: int, head: int, q: F32, k: F32, v: F32) -> F32:
        """One query head over its stored q, k and v [positions, head_dim]."""
        scale, window = self.config.attention_scale(layer), self.config.window(layer)
        bias, cap = self._bias(head, len(q)), self.config.score_cap
        return attend(q, k, v, scale, bias, window, cap, self._sink(layer, head))

    def _sink(self, layer: int, head: int) -> np.float32 | None:
        """One more logit of the head's softmax."""
        found = self.weights.get(f"layer.{layer}.sinks")
        return None if found is None else np.float32(found[head])

    def _bias(self, head: int, count: int) -> F32 | None:
        """ALiBi's addition to the scores of one query head [rows, positions]."""
        config, position = self.config, np.arange(count, dtype=np.float32)
        if config.alibi is None:
            return None
        slope = slopes(config.heads)[head]
        if config.alibi == "falcon":
            factor = np.float32(1 / np.sqrt(np.float64(config.head_dim)))
            row: F32 = bf16(bf16(np.array(slope)) * bf16(position)) * factor
            return np.broadcast_to(row, (count, count))
        bias: F32 = slope * (position - position[:, None])
        return bias

    def _heads(self, x: F32) -> F32:
        heads: F32 = x.reshape(len(x), -1, self.config.head_dim).transpose(1, 0, 2)
        return heads

    def _mlp(self, x: F32, layer: int) -> F32:
        name = f"layer.{layer}"
        if self.config.experts is not None and layer in self.config.experts.layers:
            return self._experts(x, layer, self.config.experts)
        up = self._linear(x, f"{name}.up")
        if self.config.gated:
            gate = self._linear(x, f"{name}.gate")
            geglu = self.config.activation == "gelu_tanh"
            gate = gate * np.float32(self.config.gate_scale)
            inner = store((gelu(gate, "tanh") if geglu else silu(gate)) * up)
        else:
            inner = activate(up, self.config.activation)
        return self._linear(inner, f"{name}.down")

    def _experts(self, x: F32, layer: int, experts: ExpertConfig) -> F32:
        """Row by row: the experts of the largest logits, summed by their numbers."""
        name = f"layer.{layer}.expert"
        logits = self._sum(x, f"layer.{layer}.router")
        out = np.zeros((len(x), self.config.hidden), np.float32)
        for i, (row, own) in enumerate(zip(x, logits, strict=True)):
            weights = self._route(own, experts, self.weights.get(f"layer.{layer}.choice_bias"))
            inner = []
            for expert in sorted(weights):
                gate, up = (self._linear(row[None], f"{name}.{expert}.{p}") for p in ("gate", "up"))
                inner.append(
                    store(clamped(gate, up, experts) if experts.limit else silu(gate) * up)
                )
            names = [f"{name}.{expert}.down" for expert in sorted(weights)]
            downs = self._downs(np.concatenate(inner), names)
            for expert, found in zip(sorted(weights), downs, strict=True):
                out[i] = out[i] + weights[expert] * found
        return self._shared(x, store(out), layer, experts)

    def _downs(self, x: F32, names: Sequence[str]) -> Sequence[F32]:
        """Row i of x, which a text's row has made with its i-th expert, by matrix i."""
        return [self._sum(row[None], name)[0] for row, name in zip(x, names, strict=True)]

    def _shared(self, x: F32, chosen: F32, layer: int, experts: ExpertConfig) -> F32:
        """What the chosen experts gave, and the one of all rows."""
        if not experts.shared:
            return chosen
        name = f"layer.{layer}.shared"
        inner = store(silu(self._linear(x, f"{name}.gate")) * self._linear(x, f"{name}.up"))
        found = self._linear(inner, f"{name}.down")
        if experts.shared_gate:
            gate = self._product(x, f"layer.{layer}.shared_gate")
            one = np.float32(1)
            found = one / (one + exp(-gate)) * found
        return store(chosen + found)

    def _route(
        self, logits: F32, experts: ExpertConfig, bias: F32 | None = None
    ) -> dict[int, np.float32]:
        """The weight of each expert that a row chooses."""
        if experts.sigmoid is not None:
            assert bias is not None
            return self._route_sigmoid(logits, bias, experts, experts.sigmoid)
        each = experts.count // experts.groups
        groups = [range(i, i + each) for i in range(0, experts.count, each)]
        groups.sort(key=lambda group: -max(logits[group.start : group.stop]))  # stable
        inside = sorted(expert for group in groups[: experts.taken] for expert in group)
        order = sorted(inside, key=lambda expert: (-logits[expert], expert))
        chosen = sorted(order[: experts.chosen])
        p = exp(logits - logits.max())
        total = np.float32(0)
        for expert in chosen if experts.renormalize else range(experts.count):
            total = total + p[expert]
        factor = np.float32(experts.factor)
        return {expert: p[expert] / total * factor for expert in chosen}

    def _route_sigmoid(
        self, logits: F32, bias: F32, experts: ExpertConfig, how: SigmoidRouting
    ) -> dict[int, np.float32]:
        one = np.float32(1)
        scores = one / (one + exp(-logits))
        choice, each = scores + bias, experts.count // how.groups
        groups = [range(i, i + each) for i in range(0, experts.count, each)]
        if how.groups > 1:
            best = [sorted(choice[group.start : group.stop])[-2:] for group in groups]
            groups.sort(key=lambda group: -np.add(*best[group.start // each]))  # stable
        open_ones = sorted(expert for group in groups[: how.taken] for expert in group)
        chosen = sorted(sorted(open_ones, key=lambda expert: -choice[expert])[: experts.chosen])
        total = np.float32(0)
        for expert in chosen:
            total = total + scores[expert]
        total = total + np.float32(how.least) if experts.renormalize else one
        return {e: scores[e] / total * np.float32(how.factor) for e in chosen}


def clamped(gate: F32, up: F32, experts: ExpertConfig) -> F32:
    """The clamped SwiGLU, before it is rounded."""
    limit, alpha, one = np.float32(experts.limit), np.float32(experts.alpha), np.float32(1)
    gate = np.where(gate > limit, limit, gate)
    up = np.where(up > limit, limit, np.where(up < -limit, -limit, up))
    found: F32 = (gate / (one + exp(-(gate * alpha)))) * (up + one)
    return found


def slopes(heads: int) -> F32:
    """ALiBi's slope of each head as MPT's code orders them, which is BLOOM's order too: of the next
    power of two of heads every second slope, then those between."""
    whole = int(2 ** np.ceil(np.log2(heads)))
    exponents = [8 * i / whole for i in range(1, whole + 1)]
    if whole > heads:
        exponents = (exponents[1::2] + exponents[0::2])[:heads]
    return np.array([0.5**exponent for exponent in exponents]).astype(np.float32)


def rotate(x: F32, rope: RopeConfig) -> F32:
    """Rotary positions 0.. of FP16 heads [heads, positions, head_dim], stored. Columns c and
    c + head_dim/2 of the first width/2 pairs; the others stay as they are."""
    far = x.shape[2] // 2
    pairs = rope.width // 2 or far
    cos, sin = angles(rope, x.shape[1], 2 * pairs)
    a, b, y = x[..., :pairs], x[..., far : far + pairs], x.copy()
    y[..., :pairs], y[..., far : far + pairs] = store(a * cos - b * sin), store(b * cos + a * sin)
    return y


def angles(rope: RopeConfig, positions: int, head_dim: int) -> tuple[F32, F32]:
    """(cos, sin) [positions, head_dim/2], from the system's float64 functions. The rounding to FP32
    hides their last bits, so they can check the package's polynomials."""
    inverse = np.array([_frequency(rope, i, head_dim) for i in range(head_dim // 2)])
    position = np.arange(positions, dtype=np.float32)
    angle = (position[:, None] * inverse.astype(np.float32)).astype(np.float64)
    scale = rope.attention_factor
    return (np.cos(angle) * scale).astype(np.float32), (np.sin(angle) * scale).astype(np.float32)


def _frequency(rope: RopeConfig, pair: int, width: int) -> float:
    """How far a pair turns by position, as the scaling has it."""
    frequency = float(np.float64(rope.theta) ** (-2 * pair / width))
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, frequency)
    if rope.kind == "yarn":
        return _yarn(rope, frequency, pair, width)
    if rope.kind == "longrope":
        fits = rope.context <= rope.original_positions
        return frequency / (rope.short_factors if fits else rope.long_factors)[pair]
    if rope.kind == "dynamic":  # factor*(L/M) - (factor-1), at least 1
        more = rope.factor * max(0, rope.context - rope.original_positions)
        base = rope.theta * (1 + more / rope.original_positions) ** (width / (width - 2))
        return float(base ** (-2 * pair / width))
    return frequency


def _yarn(rope: RopeConfig, frequency: float, pair: int, width: int) -> float:
    """Pairs up to `low` keep their frequency, from `high` on it is divided."""
    ends = []
    for turns, whole in ((rope.beta_fast, np.floor), (rope.beta_slow, np.ceil)):
        wave = rope.original_positions / turns / (2 * np.pi)  # 1/frequency of such a pair
        end = width / 2 * np.log(wave) / np.log(rope.theta)
        ends.append(whole(end) if rope.truncate else end)
    low, high = max(ends[0], 0), min(ends[1], width - 1)
    divided = min(max((pair - low) / (high - low or 0.001), 0), 1)
    return float(frequency / rope.factor * divided + frequency * (1 - divided))


def _llama3(rope: RopeConfig, frequency: float) -> float:
    wave, old = 2 * np.pi / frequency, rope.original_positions
    if wave > old / rope.low_freq_factor:
        return frequency / rope.factor
    if wave < old / rope.high_freq_factor:
        return frequency
    s = (old / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return float((1 - s) * (frequency / rope.factor) + s * frequency)
