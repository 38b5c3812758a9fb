"""GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one KV head for all queries, or with q, k and v
of each head side by side."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.families import gpt2
from lora_sdk.model.families.gpt2 import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    fields.only("scale_attn_by_inverse_layer_idx", (False,), "scores scaled by layer")
    for name in ("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"):
        fields.flag(name, True)  # FP32 in any case
    config = gpt2.normalize(fields)
    kv_heads = 1 if fields.flag("multi_query", True) else config.heads
    fields.only("num_key_value_heads", (kv_heads,), "another number than multi_query's")
    return replace(config, architecture="gpt_bigcode", kv_heads=kv_heads)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("wte.weight", config.vocabulary, d),
        "embed.position": table("wpe.weight", config.position_rows, d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"h.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    return {
        **norm(f"{name}.attn_norm", f"{tensor}.ln_1", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.ln_2", d),
        **_fused(config, name, f"{tensor}.attn.c_attn"),
        **biased(f"{name}.o", f"{tensor}.attn.c_proj", d, d, config.o_bias),
        **biased(f"{name}.up", f"{tensor}.mlp.c_fc", d, ffn, config.mlp_bias),
        **biased(f"{name}.down", f"{tensor}.mlp.c_proj", ffn, d, config.mlp_bias),
    }


def _fused(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """Outputs of one matrix: q's heads, then k, then v; or q, k and v of the first head, then of
    the second, where each has its own."""
    size, heads = config.head_dim, config.heads
    total = config.hidden + 2 * config.kv_heads * size
    found: dict[str, Source] = {}
    for part, letter in enumerate("qkv"):
        if config.kv_heads == heads:
            starts = [(3 * head + part) * size for head in range(heads)]
        elif letter == "q":
            starts = [head * size for head in range(heads)]
        else:
            starts = [(heads + part - 1) * size]
        order = tuple(start + column for start in starts for column in range(size))
        key, count = f"{name}.{letter}", len(order)
        found[key] = Source(f"{tensor}.weight", "oi", (total, config.hidden), 0, count, order)
        found[f"{key}.bias"] = Source(f"{tensor}.bias", "vector", (total,), 0, count, order)
    return found
