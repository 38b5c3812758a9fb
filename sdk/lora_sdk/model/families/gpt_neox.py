"""GPT-NeoX and Pythia: q, k and v of each head in one matrix, rotary positions on a part of it,
attention and MLP side by side behind a norm each, or one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lora_sdk.model.families.gpt2 import ACTIVATIONS as _GPT2_ACTIVATIONS
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.fused_heads import heads_side_by_side
from lora_sdk.model.heads import read_head_dim
from lora_sdk.model.rope import head_order
from lora_sdk.model.rope_fields import read_rope, rotary_width, scaled_positions
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import Activation, ModelConfig

ACTIVATIONS: Mapping[str, Activation] = {**_GPT2_ACTIVATIONS, "gelu_fast": "gelu_tanh"}
PREFIXES = ("gpt_neox.", "")
PROBE = "embed_in.weight"
IGNORED = re.compile(r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 6144)
    heads = fields.integer("num_attention_heads", 64)
    head_dim = read_head_dim(fields, hidden, heads)
    if head_dim * heads != hidden:
        raise fields.error("head_dim", head_dim, f"hidden_size/num_attention_heads of {hidden}")
    positions = fields.integer("max_position_embeddings", 2048, high=MAX_POSITIONS)
    width = rotary_width(fields, head_dim, 0.25, ("rotary_pct",))
    names = ("rotary_emb_base", "rope_theta")
    rope = read_rope(fields, positions, names, width, head_dim=head_dim)
    attention_bias = fields.flag("attention_bias", True)
    parallel = fields.flag("use_parallel_residual", True)
    return ModelConfig(
        architecture="gpt_neox",
        layers=fields.integer("num_hidden_layers", 44, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", 24576),
        vocabulary=fields.integer("vocab_size", 50432),
        positions=scaled_positions(rope, positions),
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=fields.choice("hidden_act", "gelu", ACTIVATIONS),
        rope=rope,
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=True,
        residual="parallel_two_norms" if parallel else "sequential",
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_in.weight", config.vocabulary, d),
        **norm("final_norm", "final_layer_norm", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("embed_out", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    assert config.rope is not None
    d, ffn, size = config.hidden, config.ffn, config.head_dim
    rotated = head_order(size, config.rope.width or size, interleaved=False)
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d),
        **heads_side_by_side(config, name, f"{tensor}.attention.query_key_value", rotated),
    }
    found |= biased(f"{name}.o", f"{tensor}.attention.dense", d, d, config.o_bias)
    found |= biased(f"{name}.up", f"{tensor}.mlp.dense_h_to_4h", d, ffn, config.mlp_bias)
    return found | biased(f"{name}.down", f"{tensor}.mlp.dense_4h_to_h", ffn, d, config.mlp_bias)
