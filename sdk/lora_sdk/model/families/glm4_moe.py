"""GLM-4-MoE (GLM-4.5 to 4.7): experts by sigmoid routing, one of every row beside them, behind
dense layers; a part of each head is rotated, q and k may be normed by head."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import read_experts, read_sigmoid, routed_sources
from lora_sdk.model.families import llama
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.partial_rotary import head_norms, separate_qkv
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=46, hidden=4096, heads=96, kv_heads=8, ffn=10944, vocabulary=151552,
                    positions=131072, eps=1e-5, rotary=0.5)  # fmt: skip
EXTRA_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "glm4_moe", DEFAULTS)
    dense = fields.integer("first_k_dense_replace", 1, 0)
    experts = read_experts(
        fields, range(dense, config.layers), fields.flag("norm_topk_prob", True),
        ("n_routed_experts", "num_local_experts"), 128, 8, "moe_intermediate_size", 1408,
    )  # fmt: skip
    experts = read_sigmoid(fields, experts)
    shared = experts.ffn * fields.integer("n_shared_experts", 1, high=64)
    return replace(
        config,
        qkv_bias=fields.flag("attention_bias", False),
        head_norms="heads" if fields.flag("use_qk_norm", False) else "none",
        extra_layers=fields.integer(EXTRA_LAYERS, 1, 0, 64),
        experts=replace(experts, shared=shared) if experts.layers else None,
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; q and k in the order in which boards rotate."""
    found = llama.sources(config) | routed_sources(config)
    for layer in range(config.layers):
        name, module = f"layer.{layer}", f"layers.{layer}.self_attn"
        found |= separate_qkv(config, name, module)
        found |= head_norms(config, name, module)
    return found
