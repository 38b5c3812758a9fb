"""StableLM: LayerNorms around a gated MLP, rotary positions on a part of each head, attention and
MLP one after the other, or side by side behind one norm."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.partial_rotary import separate_qkv
from lora_sdk.model.source import Source, head, linear, norm, table
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


DEFAULTS = Defaults(
    hidden=2560, kv_heads=32, ffn=6912, vocabulary=50304, positions=4096, eps=1e-5, rotary=0.25
)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    parallel = fields.flag("use_parallel_residual", False)
    return replace(
        read_decoder(fields, "stablelm", DEFAULTS, "layer_norm_eps"),
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
