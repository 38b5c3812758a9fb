"""LLaMA and Mistral: configuration fields and tensor names."""

from __future__ import annotations

import re

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.refused import refuse_window
from lora_sdk.model.rope_fields import read_rope
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("model.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
MISTRAL_WINDOW = 4096  # the default of Mistral's configuration


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    mistral = fields.raw("model_type")[1] == "mistral"
    hidden = fields.integer("hidden_size", 4096)
    heads = fields.integer("num_attention_heads", 32)
    kv_heads = read_kv_heads(fields, heads, 8 if mistral else heads)
    head_dim = read_head_dim(fields, hidden, heads)
    positions = fields.integer(
        "max_position_embeddings", 4096 * 32 if mistral else 2048, high=MAX_POSITIONS
    )
    # A null in the file switches the window off; only a missing field has the default.
    silent = mistral and "sliding_window" not in fields.values
    refuse_window(fields, positions, MISTRAL_WINDOW if silent else None)
    attention_bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture="llama",
        layers=fields.integer("num_hidden_layers", 32, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", 14336 if mistral else 11008),
        vocabulary=fields.integer("vocab_size", 32000),
        positions=positions,
        embed_dim=hidden,
        norm="rmsnorm",
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        norm_first=True,
        final_norm=True,
        norm_affine=True,
        activation=fields.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"}),
        gated=True,
        rope=read_rope(fields, positions),
        position_rows=0,
        position_offset=0,
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; lm_head only if it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d, beta=False),
    }
    for layer in range(config.layers):
        found.update(_layer(config, f"layer.{layer}", f"layers.{layer}"))
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d, beta=False),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d, beta=False),
    }
    for part, inputs, outputs, bias in (
        ("q", d, queries, config.qkv_bias),
        ("k", d, keys, config.qkv_bias),
        ("v", d, keys, config.qkv_bias),
        ("o", queries, d, config.o_bias),
    ):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.self_attn.{part}_proj", inputs, outputs, bias)
        )
    for part, inputs, outputs in (("gate", d, ffn), ("up", d, ffn), ("down", ffn, d)):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.mlp.{part}_proj", inputs, outputs, config.mlp_bias)
        )
    return found
