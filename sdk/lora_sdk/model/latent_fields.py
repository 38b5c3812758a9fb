"""Fields and tensors of families with latent attention, spelled as DeepSeek does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import routed_sources
from lora_sdk.model.families import llama
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.rope import head_order
from lora_sdk.model.rope_fields import read_rope, rotary_width, scaled_positions, yarn_score_scale
from lora_sdk.model.source import Source, biased, linear, reordered, vector
from lora_sdk.model.spec import LatentConfig, ModelConfig

NORM_EPS = 1e-6
"""Of the latents' norms, whatever rms_norm_eps is."""
EXTRA_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")
Q_RANK = "q_lora_rank"
OF_TRAINING = ("aux_loss_alpha", "seq_aux", "ep_size", "qk_head_dim")
"""Fields of which no logit depends, or that others give."""


@dataclass(frozen=True)
class LatentDefaults:
    """What fields that config.json leaves out mean. A q_lora_rank of null is 0: no latent of q."""

    q: int
    nope: int
    values: int
    kv: int = 512
    rope: int = 64


def read_latent(
    fields: Fields, architecture: str, defaults: Defaults, own: LatentDefaults
) -> ModelConfig:
    """A decoder with latent attention. `defaults` without `theta`. ModelError names a field that is
    wrong: odd parts of heads, heads of v wider than those of k, fewer KV heads than heads, a part
    of the rotated columns that is not rotated."""
    config = read_decoder(fields, architecture, replace(defaults, head_dim=own.rope))
    if config.kv_heads != config.heads:
        expected = f"num_attention_heads {config.heads}: latent attention has as many"
        raise fields.error("num_key_value_heads", config.kv_heads, expected)
    nope, rope = (
        _even(fields, name, default)
        for name, default in (("qk_nope_head_dim", own.nope), ("qk_rope_head_dim", own.rope))
    )
    values = fields.integer("v_head_dim", own.values, high=4096)
    if values > nope + rope:
        expected = f"at most qk_nope_head_dim + qk_rope_head_dim {nope + rope}"
        raise fields.error("v_head_dim", values, expected)
    if rotary_width(fields, rope, 1.0):
        raise fields.error("partial_rotary_factor", "less than 1", "1")
    for name in OF_TRAINING:
        fields.raw(name)
    absent = Q_RANK in fields.values and fields.values[Q_RANK] is None
    latent = LatentConfig(
        kv=fields.integer("kv_lora_rank", own.kv),
        q=fields.integer(Q_RANK, 0 if absent else own.q, 0 if absent else 1),
        rope=rope,
        values=values,
        biased=fields.flag("attention_bias", False),
        eps=NORM_EPS,
        interleaved=fields.flag("rope_interleave", True),
    )
    return _rotated(fields, replace(
        config, head_dim=nope + rope, latent=latent, o_bias=latent.biased,
    ))  # fmt: skip


def _even(fields: Fields, name: str, default: int) -> int:
    found = fields.integer(name, default, 2, 4096)
    if found % 2:
        raise fields.error(name, found, "an even number")
    return found


def _rotated(fields: Fields, config: ModelConfig) -> ModelConfig:
    """`config` with its rotary positions and the factor of its scores."""
    latent = config.latent
    assert latent is not None
    positions = fields.integer("max_position_embeddings", config.positions, high=MAX_POSITIONS)
    rope = read_rope(fields, positions, width=latent.rope, head_dim=config.head_dim)
    scale = yarn_score_scale(fields, rope)
    factor = 1.0 / math.sqrt(config.head_dim) * scale * scale
    return replace(
        config, rope=rope, positions=scaled_positions(rope, positions),
        score_factor=None if scale == 1 else factor,
    )  # fmt: skip


def latent_sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files: with experts, where the model has some."""
    found = llama.sources(config) | routed_sources(config)
    for layer in range(config.layers):
        name, module = f"layer.{layer}", f"layers.{layer}.self_attn"
        found |= _attention(config, name, module)
    return found


def _attention(config: ModelConfig, name: str, module: str) -> dict[str, Source]:
    """q and k in the order in which boards rotate them."""
    latent = config.latent
    assert latent is not None
    d, heads, size, rope = config.hidden, config.heads, config.head_dim, latent.rope
    nope, turned = size - rope, head_order(rope, rope, latent.interleaved)
    inner = head_order(size, rope, latent.interleaved)  # as if the rotated columns were first
    order = [nope + column if column < rope else column - rope for column in inner]
    found = {}
    q, inputs = ("q_b_proj", latent.q) if latent.q else ("q_proj", d)
    found[f"{name}.q"] = reordered(linear(f"{module}.{q}.weight", inputs, heads * size), order)
    if latent.q:
        found |= biased(f"{name}.q_a", f"{module}.q_a_proj", d, latent.q, latent.biased)
        found[f"{name}.q_a_norm.gamma"] = vector(f"{module}.q_a_layernorm.weight", latent.q)
    whole = biased("kv_a", f"{module}.kv_a_proj_with_mqa", d, latent.kv + rope, latent.biased)
    for own, source in whole.items():
        keys = [latent.kv + column for column in turned]
        found[f"{name}.{own}"] = replace(source, count=latent.kv)
        found[f"{name}.{own.replace('kv_a', 'k_rope')}"] = _chosen(source, keys)
    found[f"{name}.kv_a_norm.gamma"] = vector(f"{module}.kv_a_layernorm.weight", latent.kv)
    each = nope + latent.values
    expanded = linear(f"{module}.kv_b_proj.weight", latent.kv, heads * each)
    for part, columns in (("k", range(nope)), ("v", range(nope, each))):
        outputs = [head * each + column for head in range(heads) for column in columns]
        found[f"{name}.{part}"] = _chosen(expanded, outputs)
    o = biased(f"{name}.o", f"{module}.o_proj", heads * latent.values, d, config.o_bias)
    return found | o


def _chosen(source: Source, outputs: Sequence[int]) -> Source:
    """Some outputs of a tensor."""
    return replace(source, first=outputs[0], count=len(outputs), order=tuple(outputs))
