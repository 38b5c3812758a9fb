"""Phi-1, 1.5 and 2: attention and MLP side by side behind one norm, rotary positions on a part of
each head, biases everywhere."""

from __future__ import annotations

import re

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.gpt2 import ACTIVATIONS
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.partial_rotary import separate_qkv
from lora_sdk.model.rope_fields import read_rope, rotary_width
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("model.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 2048)
    heads = fields.integer("num_attention_heads", 32)
    head_dim = read_head_dim(fields, hidden, heads)
    positions = fields.integer("max_position_embeddings", 2048, high=MAX_POSITIONS)
    width = rotary_width(fields, head_dim, 0.5)
    return ModelConfig(
        architecture="phi",
        layers=fields.integer("num_hidden_layers", 24, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(fields, heads, heads),
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", 8192),
        vocabulary=fields.integer("vocab_size", 51200),
        positions=positions,
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_first=True,
        final_norm=True,
        norm_affine=True,
        activation=fields.choice("hidden_act", "gelu_new", ACTIVATIONS),
        gated=False,
        rope=read_rope(fields, positions, width=width),
        position_rows=0,
        position_offset=0,
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        residual="parallel",
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "final_layernorm", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn, queries = config.hidden, config.ffn, config.heads * config.head_dim
    return {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **separate_qkv(config, name, f"{tensor}.self_attn"),
        **biased(f"{name}.o", f"{tensor}.self_attn.dense", queries, d, config.o_bias),
        **biased(f"{name}.up", f"{tensor}.mlp.fc1", d, ffn, config.mlp_bias),
        **biased(f"{name}.down", f"{tensor}.mlp.fc2", ffn, d, config.mlp_bias),
    }
