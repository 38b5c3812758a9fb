"""Falcon: the decoder of 40B and 180B and the one of the others; one KV head, several or all;
rotary positions or ALiBi."""

from __future__ import annotations

import re
from typing import Literal

from lora_sdk.model.families.gpt2 import ACTIVATIONS
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.fused_heads import heads_side_by_side
from lora_sdk.model.heads import read_head_dim
from lora_sdk.model.rope_fields import read_rope, scaled_positions
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig, Residual

PREFIXES = ("transformer.", "")
PROBE = "word_embeddings.weight"
IGNORED = re.compile(r"h\.\d+\.self_attention\.(rotary_emb|maybe_rotary)\.inv_freq")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer(("hidden_size", "n_embed"), 4544)
    heads = fields.integer(("num_attention_heads", "n_head"), 71)
    head_dim = read_head_dim(fields, hidden, heads)
    if head_dim * heads != hidden:
        raise fields.error("head_dim", head_dim, f"hidden_size/num_attention_heads of {hidden}")
    positions = fields.integer("max_position_embeddings", 2048, high=MAX_POSITIONS)
    bias, alibi = fields.flag("bias", False), fields.flag("alibi", False)
    for name in ("rope_parameters", "rope_scaling", "rope_theta"):
        fields.raw(name)  # not read with ALiBi
    rope = None if alibi else read_rope(fields, positions, head_dim=head_dim)
    return ModelConfig(
        architecture="falcon",
        layers=fields.integer(("num_hidden_layers", "n_layer"), 32, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(fields, heads),
        head_dim=head_dim,
        ffn=fields.integer("ffn_hidden_size", 4 * hidden),
        vocabulary=fields.integer("vocab_size", 65024),
        positions=scaled_positions(rope, positions) if rope is not None else positions,
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=fields.choice("activation", "gelu", ACTIVATIONS),
        rope=rope,
        tied=fields.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
        residual=_residual(fields),
        alibi="falcon" if alibi else None,
    )


def _kv_heads(fields: Fields, heads: int) -> int:
    """num_kv_heads, which the older decoder with multi_query does not read: it has one."""
    multi_query = fields.flag("multi_query", True)
    kv_heads = fields.integer(("num_kv_heads", "n_head_kv"), heads)
    new = fields.flag("new_decoder_architecture", False)
    if multi_query and not new:
        return 1
    if heads % kv_heads or (not new and kv_heads != heads):
        expected = f"a divisor of num_attention_heads {heads}" if new else f"{heads} or none"
        raise fields.error("num_kv_heads", kv_heads, expected)
    return kv_heads


def _residual(fields: Fields) -> Residual:
    """The newer decoder is always parallel, behind one norm or two."""
    parallel = fields.flag("parallel_attn", True)
    norms = fields.integer("num_ln_in_parallel_attn", 2, high=2)
    if fields.flag("new_decoder_architecture", False):
        fields.only("parallel_attn", (True,), "the newer decoder without parallel attention")
        return "parallel_two_norms" if norms == 2 else "parallel"
    return "parallel" if parallel else "sequential"


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("word_embeddings.weight", config.vocabulary, d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"h.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


_NORMS: dict[Residual, tuple[tuple[Literal["attn", "mlp"], str], ...]] = {
    "parallel": (("attn", "input_layernorm"),),
    "parallel_two_norms": (("attn", "ln_attn"), ("mlp", "ln_mlp")),
    "sequential": (("attn", "input_layernorm"), ("mlp", "post_attention_layernorm")),
}


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    found: dict[str, Source] = {}
    for part, module in _NORMS[config.residual]:
        found |= norm(f"{name}.{part}_norm", f"{tensor}.{module}", d)
    found |= heads_side_by_side(config, name, f"{tensor}.self_attention.query_key_value")
    found |= biased(f"{name}.o", f"{tensor}.self_attention.dense", d, d, config.o_bias)
    found |= biased(f"{name}.up", f"{tensor}.mlp.dense_h_to_4h", d, ffn, config.mlp_bias)
    return found | biased(f"{name}.down", f"{tensor}.mlp.dense_4h_to_h", ffn, d, config.mlp_bias)
