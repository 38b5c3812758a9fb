"""The normalized configuration of a model, which all later stages read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lora_host import abi
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import FP16, MatrixFormat, Quantization, with_kv
from lora_sdk.model.weight_formats import W4A16

PAGE_POSITIONS: int = abi.TILE_POSITIONS
FP16_BYTES, FP32_BYTES = 2, 4

NormKind = Literal["layernorm", "rmsnorm"]
Activation = Literal["relu", "relu2", "gelu_tanh", "gelu_erf", "silu"]
Alibi = Literal["bloom", "falcon"]
Residual = Literal["sequential", "parallel", "parallel_two_norms"]
HeadNorms = Literal["none", "heads", "row"]
BranchNorms = Literal["none", "alone", "both"]
Recurrence = Literal["short_conv", "gated_delta", "selective_scan"]
RopeKind = Literal["default", "linear", "llama3", "yarn", "longrope", "dynamic"]


@dataclass(frozen=True)
class RopeConfig:
    """Rotary positions. `kind` is the scaling of the inverse frequencies; the fields below `theta`
    are 1 or 0 if the kind does not read them. `width`: the columns of a head that are rotated, 0
    for all. Pairs are columns i and i + head_dim/2; the first width/2 pairs are rotated. Families
    whose files pair columns otherwise reorder q and k (`rope.head_order`). Cosines and sines are
    multiplied by `attention_factor`. `context`: the longest sequence that longrope and dynamic are
    made for, the model's positions until an engine opens with another."""

    kind: RopeKind
    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0
    width: int = 0
    attention_factor: float = 1.0
    beta_fast: float = 0.0
    beta_slow: float = 0.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    context: int = 0


@dataclass(frozen=True)
class SigmoidRouting:
    """A choice by sigmoids of the logits plus a bias, and weights by the sigmoids alone, times
    `factor`. The experts lie in `groups` of equal sizes, of which a row takes `taken`. `least` is
    added to the sum by which weights are divided: 1e-20 or 1e-6."""

    groups: int = 1
    taken: int = 1
    factor: float = 1.0
    least: float = 1e-20


@dataclass(frozen=True)
class ExpertConfig:
    """A mixture of experts in place of the MLP of `layers`: `count` experts with an inner size of
    `ffn`, of which each row takes `chosen`. Their weights add up to 1 where `renormalize`, else
    those of all experts do; with `sigmoid` they are as that says. `shared`: the inner size of an
    expert that every row takes in addition, 0 without one; `shared_gate`: its output is multiplied
    by a sigmoid. `biased`: the router and all matrices have biases. `limit`: of a clamped SwiGLU,
    with `alpha`, 0 for the plain one. Without `sigmoid` the experts lie in `groups` of equal sizes,
    of which a row takes `taken`, and weights are multiplied by `factor`."""

    count: int
    chosen: int
    ffn: int
    renormalize: bool
    layers: frozenset[int]
    shared: int = 0
    shared_gate: bool = False
    sigmoid: SigmoidRouting | None = None
    biased: bool = False
    limit: float = 0.0
    alpha: float = 0.0
    groups: int = 1
    taken: int = 1
    factor: float = 1.0


@dataclass(frozen=True)
class LatentConfig:
    """K and V of all heads from a latent of `kv` columns, q from one of `q` columns, 0: from the
    layer's input (docs/numbers.md, 3.21). `rope`: the columns of a head that are rotated, which in
    k are the same for all heads; `values`: the columns of a head of v, of which heads have
    head_dim in the cache. `biased`: what makes the latents has biases. `eps`: of their norms.
    `interleaved`: the files pair neighbouring columns."""

    kv: int
    q: int
    rope: int
    values: int
    biased: bool = False
    eps: float = 1e-6
    interleaved: bool = True


@dataclass(frozen=True)
class RecurrentConfig:
    """`layers` that mix a text's positions by a recurrence in place of attention: a short
    convolution of `kernel` positions (docs/numbers.md, 3.17), or behind one a gated delta rule
    (3.18) or a selective scan (3.20). `values`: columns that come out of it, of `value_heads`
    heads; `keys`: columns of q, and of k, of `key_heads` heads. The short convolution has neither
    heads nor keys; the scan's C, B, x and dt are q, k, v and a, and its groups key heads. The
    scan's alone: `biased`, its convolution; `limits` of the time step; `factors` of C, B, x, dt and
    z; `normed`: the output is normed, group by group. `beside`: the
    layers have attention, too, on the same input, before it."""

    kind: Recurrence
    layers: frozenset[int]
    kernel: int
    values: int
    keys: int = 0
    key_heads: int = 0
    value_heads: int = 0
    biased: bool = False
    limits: tuple[float, float] = (0.0, math.inf)
    factors: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)
    normed: bool = False
    beside: bool = False

    def columns(self, kv_heads: int) -> int:
        """Columns that a position keeps for each KV head: B*x; or q, k and v before the
        convolution, a and b, or a alone. A group of several KV heads is kept by each."""
        gates = {"short_conv": 0, "gated_delta": 2, "selective_scan": 1}[self.kind]
        own = (self.values + gates * self.value_heads) // kv_heads
        return 2 * self.keys // max(1, min(kv_heads, self.key_heads)) + own

    @property
    def state_bytes(self) -> int:
        """Of the state behind a position, FP32; 0: the positions' columns are all there is."""
        if self.kind == "short_conv":
            return 0
        return FP32_BYTES * (self.keys // self.key_heads) * self.values


@dataclass(frozen=True)
class ModelConfig:
    """A model as the engine computes it; sizes are in elements.

    `positions` is the longest context; `position_rows` the rows of a learned position table (0
    without one), of which position p reads row p + `position_offset`. `embed_dim` is the width of
    token embeddings and lm_head, `hidden` except in projecting OPT models. `norm_first`: norms
    come before their branch, not after its sum. `residual`: attention and MLP in sequence, or both
    on the layer's input, after one shared norm or one norm each. `branch_norms`: norms of a
    branch's output before the sum, instead of those before the branch or in addition.
    `head_norms`: RMSNorms of q and k before the rotation, of each head or of the whole row.
    `unrotated`: layers without rotary positions. Embeddings, the branches' outputs and the logits
    are multiplied by `embed_scale`, `branch_scale` and `logit_scale`. `score_factor` takes
    1/sqrt(head_dim)'s place where it is not None. `norm_bias`: LayerNorms have a beta.
    `embed_norm`: token embeddings are normed before the first layer. `alibi`: whose slopes
    attention adds to its scores, if any. `windows`: how many positions a row sees in each layer,
    itself included, 0 for all; empty where every layer sees all. `local_rope`: rotary positions of
    `local_layers`, of the others `rope`. `one_plus`: RMSNorms multiply by 1 + gamma. The
    residual stream holds `stream_scale`, a power of two, times its values. `score_cap` and
    `logit_cap` bound scores and logits softly, 0: not. `extra_layers`: how many layers behind the
    last the files may have, which are not read (of multi-token prediction). `experts`: the layers
    that have some, and which; `ffn` is the other layers' inner size. `recurrent`: the layers that
    have no attention, and what they have. `output_gate`: attention's output is multiplied by a
    sigmoid, of a gate beside q. `sinks`: the softmax of each head has one more logit, which weighs
    no position. `gate_scale`: a gated MLP's gate is multiplied by it before its activation.
    `mixer_scales`: factors of the outputs of attention, recurrence and MLP beside `branch_scale`.
    `latent`: K and V are made from a latent, in every layer.
    `without_mixer`: layers of an MLP alone, `without_mlp`: of attention or a recurrence alone.
    `quantization` is None if everything is FP16.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: int
    embed_dim: int
    norm: NormKind
    norm_eps: float
    activation: Activation
    tied: bool
    norm_first: bool = True
    final_norm: bool = True
    norm_affine: bool = True
    gated: bool = False
    rope: RopeConfig | None = None
    position_rows: int = 0
    position_offset: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    residual: Residual = "sequential"
    norm_bias: bool = True
    embed_norm: bool = False
    alibi: Alibi | None = None
    windows: tuple[int, ...] = ()
    scale_scores: bool = True
    scale_by_layer: bool = False
    score_factor: float | None = None
    branch_norms: BranchNorms = "none"
    head_norms: HeadNorms = "none"
    unrotated: frozenset[int] = frozenset()
    embed_scale: float = 1.0
    branch_scale: float = 1.0
    logit_scale: float = 1.0
    local_rope: RopeConfig | None = None
    local_layers: frozenset[int] = frozenset()
    one_plus: bool = False
    stream_scale: float = 1.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    extra_layers: int = 0
    experts: ExpertConfig | None = None
    recurrent: RecurrentConfig | None = None
    output_gate: bool = False
    gate_scale: float = 1.0
    mixer_scales: tuple[float, float, float] = (1.0, 1.0, 1.0)
    without_mixer: frozenset[int] = frozenset()
    without_mlp: frozenset[int] = frozenset()
    sinks: bool = False
    latent: LatentConfig | None = None
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None
    quantization: Quantization | None = None

    def window(self, layer: int) -> int:
        """Positions that a row sees in `layer`, itself included; 0 for all."""
        return self.windows[layer] if self.windows else 0

    def recurs(self, layer: int) -> bool:
        """Whether `layer` has a recurrence."""
        return self.recurrent is not None and layer in self.recurrent.layers

    def attends(self, layer: int) -> bool:
        """Whether `layer` has attention."""
        if self.recurrent is not None and layer in self.recurrent.layers:
            return self.recurrent.beside
        return layer not in self.without_mixer

    def planes(self, layer: int) -> int:
        """How often `layer` has K and V's room in the pages of the cache: once with attention; as
        often as what a recurrence keeps of its positions needs, and behind that its state."""
        own = self.position_planes + self.state_planes if self.recurs(layer) else 0
        return int(self.attends(layer)) + own

    def planes_of(self, layers: range) -> range:
        """The planes of consecutive layers among those of all."""
        first = sum(map(self.planes, range(layers.start)))
        return range(first, first + sum(map(self.planes, layers)))

    @property
    def all_planes(self) -> int:
        """Planes of all layers."""
        return len(self.planes_of(range(self.layers)))

    @property
    def position_planes(self) -> int:
        """Planes of a recurrent layer for what it keeps of each position."""
        assert self.recurrent is not None
        return -(-self.recurrent.columns(self.kv_heads) // (2 * self.head_dim))

    @property
    def state_planes(self) -> int:
        """Planes of a recurrent layer for its state at a page's end."""
        assert self.recurrent is not None
        each = 2 * PAGE_POSITIONS * FP16_BYTES * self.kv_heads * self.head_dim
        return -(-self.recurrent.state_bytes // each)

    def rope_of(self, layer: int) -> RopeConfig | None:
        """Rotary positions of `layer`."""
        return self.local_rope if layer in self.local_layers else self.rope

    @property
    def read_positions(self) -> int:
        """Positions that some layer's rows see, themselves included; 0 for all."""
        return max(self.windows) if self.windows and all(self.windows) else 0

    def attention_factor(self, layer: int) -> float:
        """The factor of q.k in `layer` (0 is the first) in double precision."""
        scale = 1.0 / math.sqrt(self.head_dim) if self.scale_scores else 1.0
        scale = scale if self.score_factor is None else self.score_factor
        return scale / (layer + 1) if self.scale_by_layer else scale

    def attention_scale(self, layer: int) -> np.float32:
        """The same rounded once to FP32."""
        rounded: np.float32 = np.float32(self.attention_factor(layer))
        return rounded


def with_kv_cache(config: ModelConfig, kv: KvKind | None) -> ModelConfig:
    """A model's configuration with another type of KV cache; None keeps it."""
    return replace(config, quantization=with_kv(config.quantization, kv))


def without_blocks(config: ModelConfig) -> ModelConfig:
    """A model's configuration with matrices in blocks of GGUF files as FP16, of Q4_0 as W4A16."""
    found = config.quantization
    if found is None or not any(form.weights.gguf for form in found.all_formats):
        return config
    formats = {
        name: MatrixFormat(W4A16.name, 32) if form.kind == "q4_0" else form
        for name, form in found.formats.items()
    }
    kept = {name: form for name, form in formats.items() if form.weights.gguf is None}
    rest = replace(found, formats=kept, tokens=FP16)
    return replace(config, quantization=rest if rest.quantized else None)


def dequantized_blocks(config: ModelConfig) -> ModelConfig:
    """A model's configuration with matrices in blocks of GGUF files as FP16, of every kind."""
    found = config.quantization
    if found is None or any(form.weights.gguf is None for form in found.formats.values()):
        return config
    return replace(config, quantization=None)
