"""Qwen2 and Qwen2.5: LLaMA's tensor names, biases on q, k and v only."""

from __future__ import annotations

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.llama import IGNORED, PREFIXES, PROBE, sources
from lora_sdk.model.refused import refuse_layer_types
from lora_sdk.model.rope_fields import read_rope
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 4096)
    heads = fields.integer("num_attention_heads", 32)
    positions = fields.integer("max_position_embeddings", 32768, high=MAX_POSITIONS)
    fields.only("use_sliding_window", (False,), "a sliding window in some layers")
    for name in ("sliding_window", "max_window_layers"):
        fields.raw(name)  # unused without use_sliding_window
    refuse_layer_types(fields)
    return ModelConfig(
        architecture="qwen2",
        layers=fields.integer("num_hidden_layers", 32, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(fields, heads, 32),
        head_dim=read_head_dim(fields, hidden, heads),
        ffn=fields.integer("intermediate_size", 22016),
        vocabulary=fields.integer("vocab_size", 151936),
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
        qkv_bias=True,
    )
