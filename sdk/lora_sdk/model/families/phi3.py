"""Phi-3 and Phi-4-mini: q, k and v in one matrix, gate and up in another, rotary positions on a
part of each head where the configuration says so, longrope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, head, linear, norm, reordered, table
from lora_sdk.model.spec import ModelConfig, RopeKind
from lora_sdk.model.windows import read_window

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


# Old files call longrope su, or yarn.
KINDS: Mapping[str, RopeKind] = {
    "default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope",
}  # fmt: skip
DEFAULTS = Defaults(
    hidden=3072, ffn=8192, vocabulary=32064, positions=4096, eps=1e-5, rotary=1.0,
    rope_kinds=KINDS, original=4096,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "phi3", DEFAULTS)
    return replace(config, windows=read_window(fields, config))


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d, beta=False),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn, queries = config.hidden, config.ffn, config.heads * config.head_dim
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d, beta=False),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d, beta=False),
        **_fused_qkv(config, name, f"{tensor}.self_attn.qkv_proj.weight"),
        f"{name}.o": linear(f"{tensor}.self_attn.o_proj.weight", queries, d),
        f"{name}.down": linear(f"{tensor}.mlp.down_proj.weight", ffn, d),
    }
    for index, part in enumerate(("gate", "up")):
        weight = f"{tensor}.mlp.gate_up_proj.weight"
        found[f"{name}.{part}"] = Source(weight, "oi", (2 * ffn, d), index * ffn, ffn)
    return found


def _fused_qkv(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """All heads of q, then k, then v: outputs of one matrix."""
    assert config.rope is not None
    size, width = config.head_dim, config.rope.width
    heads = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    shape = (sum(heads.values()) * size, config.hidden)
    found: dict[str, Source] = {}
    first = 0
    for part, count in heads.items():
        source = Source(tensor, "oi", shape, first, count * size)
        if width and part != "v":
            source = reordered(source, head_order(size, width, interleaved=False))
        found[f"{name}.{part}"] = source
        first += count * size
    return found
