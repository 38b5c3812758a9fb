"""StarCoder2: LayerNorms, rotary positions, grouped heads, an MLP without a gate, biases."""

from __future__ import annotations

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.gpt2 import ACTIVATIONS
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.refused import refuse_window
from lora_sdk.model.rope_fields import read_rope
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 3072)
    heads = fields.integer("num_attention_heads", 24)
    positions = fields.integer("max_position_embeddings", 4096, high=MAX_POSITIONS)
    refuse_window(fields, positions, None)
    bias = fields.flag("use_bias", True)
    return ModelConfig(
        architecture="starcoder2",
        layers=fields.integer("num_hidden_layers", 30, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(fields, heads, 2),
        head_dim=read_head_dim(fields, hidden, heads),
        ffn=fields.integer("intermediate_size", 12288),
        vocabulary=fields.integer("vocab_size", 49152),
        positions=positions,
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("norm_epsilon", 1e-5),
        norm_first=True,
        final_norm=True,
        norm_affine=True,
        activation=fields.choice("hidden_act", "gelu_pytorch_tanh", ACTIVATIONS),
        gated=False,
        rope=read_rope(fields, positions),
        position_rows=0,
        position_offset=0,
        tied=fields.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn, bias = config.hidden, config.ffn, config.qkv_bias
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d),
    }
    for part, module, inputs, outputs in (
        ("q", "self_attn.q_proj", d, queries),
        ("k", "self_attn.k_proj", d, keys),
        ("v", "self_attn.v_proj", d, keys),
        ("o", "self_attn.o_proj", queries, d),
        ("up", "mlp.c_fc", d, ffn),
        ("down", "mlp.c_proj", ffn, d),
    ):
        found |= biased(f"{name}.{part}", f"{tensor}.{module}", inputs, outputs, bias)
    return found
