"""StableLM: LayerNorms around a gated MLP, rotary positions on a part of each head, attention and
MLP one after the other, or side by side behind one norm."""

from __future__ import annotations

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.heads import read_head_dim, read_kv_heads
from lora_sdk.model.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.partial_rotary import separate_qkv
from lora_sdk.model.rope_fields import read_rope, rotary_width
from lora_sdk.model.source import Source, head, linear, norm, table
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 2560)
    heads = fields.integer("num_attention_heads", 32)
    head_dim = read_head_dim(fields, hidden, heads)
    positions = fields.integer("max_position_embeddings", 4096, high=MAX_POSITIONS)
    width = rotary_width(fields, head_dim, 0.25)
    parallel = fields.flag("use_parallel_residual", False)
    return ModelConfig(
        architecture="stablelm",
        layers=fields.integer("num_hidden_layers", 32, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=read_kv_heads(fields, heads, 32),
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", 6912),
        vocabulary=fields.integer("vocab_size", 50304),
        positions=positions,
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        norm_first=True,
        final_norm=True,
        norm_affine=True,
        activation=fields.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"}),
        gated=True,
        rope=read_rope(fields, positions, width=width),
        position_rows=0,
        position_offset=0,
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=fields.flag("use_qkv_bias", False),
        residual="parallel" if parallel else "sequential",
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
    d, ffn, queries = config.hidden, config.ffn, config.heads * config.head_dim
    found = norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d)
    if config.residual == "sequential":
        found |= norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d)
    found |= separate_qkv(config, name, f"{tensor}.self_attn")
    found[f"{name}.o"] = linear(f"{tensor}.self_attn.o_proj.weight", queries, d)
    for part, inputs, outputs in (("gate", d, ffn), ("up", d, ffn), ("down", ffn, d)):
        found[f"{name}.{part}"] = linear(f"{tensor}.mlp.{part}_proj.weight", inputs, outputs)
    return found
