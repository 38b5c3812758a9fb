"""Qwen3.5-MoE's text models: Qwen3.5's layers with Qwen3-Next's experts in all of them."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.experts import read_experts, read_shared
from lora_sdk.model.families.llama import PROBE
from lora_sdk.model.families.qwen3_5 import IGNORED, PREFIXES, read_text, sources
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=40, hidden=2048, heads=16, kv_heads=2, head_dim=256, ffn=5632, vocabulary=248320,
    positions=32768, rotary=0.25,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported. The
    weights of chosen experts always add up to 1."""
    fields.only("norm_topk_prob", (True,), "weights of experts that do not add up to 1")
    config = read_text(fields, "qwen3_5_moe_text", DEFAULTS)
    experts = read_experts(
        fields, range(config.layers), True, ("num_experts", "num_local_experts"), 256, 8,
        "moe_intermediate_size", 512,
    )  # fmt: skip
    shared = read_shared(fields, experts, "shared_expert_intermediate_size", 512, gated=True)
    return replace(config, experts=shared)
