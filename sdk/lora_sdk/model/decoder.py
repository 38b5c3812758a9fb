"""The configuration of families that spell their fields as LLaMA does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.rope_fields import (
    DEFAULT_THETA,
    ORIGINAL,
    read_rope,
    rotary_width,
    scaled_positions,
)
from lora_sdk.model.spec import Activation, ModelConfig, RopeKind

SILU: Mapping[str, Activation] = {"silu": "silu", "swish": "silu"}


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What fields that config.json leaves out mean. `kv_heads` None: as many as heads. `head_dim`
    None: hidden/heads. `theta` None: the family reads its rotary positions itself. `rotary`: the
    part of a head that is rotated, None where the family always rotates all of it. `rope_kinds`:
    the names of scalings that the family has and their meanings, None for all. `original`: that of
    a family with its own original_max_position_embeddings. `activations`: the names that the family
    has."""

    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int
    vocabulary: int
    positions: int
    eps: float = 1e-6
    theta: float | None = DEFAULT_THETA
    tied: bool = False
    rotary: float | None = None
    rope_kinds: Mapping[str, RopeKind] | None = None
    original: int | None = None
    activation: str = "silu"
    activations: Mapping[str, Activation] = field(default_factory=lambda: SILU)


def read_decoder(
    fields: Fields,
    architecture: str,
    defaults: Defaults,
    eps_name: str = "rms_norm_eps",
    act_name: str | tuple[str, ...] = "hidden_act",
) -> ModelConfig:
    """A sequential pre-norm decoder with rotary positions and RMSNorms, or LayerNorms where
    `eps_name` is not that of an RMSNorm; its MLP is gated where its activation is SiLU. Families
    replace what is otherwise. ModelError names a field that is wrong."""
    hidden = fields.integer("hidden_size", defaults.hidden)
    heads = fields.integer("num_attention_heads", defaults.heads)
    head_dim = read_head_dim(fields, hidden, heads, default=defaults.head_dim)
    positions = fields.integer("max_position_embeddings", defaults.positions, high=MAX_POSITIONS)
    width = 0 if defaults.rotary is None else rotary_width(fields, head_dim, defaults.rotary)
    activation = fields.choice(act_name, defaults.activation, defaults.activations)
    own = None if defaults.original is None else fields.integer(ORIGINAL, defaults.original)
    rope = None if defaults.theta is None else read_rope(
        fields, positions, width=width, default_theta=defaults.theta, head_dim=head_dim,
        kinds=defaults.rope_kinds, original=own,
    )  # fmt: skip
    return ModelConfig(
        architecture=architecture,
        layers=fields.integer("num_hidden_layers", defaults.layers, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(fields, heads, defaults.kv_heads or heads),
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", defaults.ffn),
        vocabulary=fields.integer("vocab_size", defaults.vocabulary),
        positions=positions if rope is None else scaled_positions(rope, positions),
        embed_dim=hidden,
        norm="rmsnorm" if eps_name == "rms_norm_eps" else "layernorm",
        norm_eps=fields.number(eps_name, defaults.eps),
        activation=activation,
        gated=activation == "silu",
        rope=rope,
        tied=fields.flag("tie_word_embeddings", defaults.tied),
    )
