"""LFM2-MoE: LFM2 with experts by sigmoid routing behind its first layers."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.experts import MIXTRAL_PARTS, chosen_sources, read_experts, read_sigmoid
from lora_sdk.model.families import lfm2
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, vector
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=32, hidden=2048, heads=32, kv_heads=8, ffn=7168, vocabulary=65536, positions=128000,
    eps=1e-5, theta=1e6, tied=True,
)  # fmt: skip
LEAST_WEIGHT = 1e-6


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    fields.only("use_expert_bias", (True,), "a choice of experts without its bias")
    config = lfm2.read(fields, "lfm2_moe", DEFAULTS)
    dense = fields.integer("num_dense_layers", 2, 0)
    experts = read_experts(
        fields, range(dense, config.layers), fields.flag("norm_topk_prob", True),
        ("num_experts", "num_local_experts"), 32, 4, "moe_intermediate_size", 1792,
    )  # fmt: skip
    experts = read_sigmoid(fields, experts)
    assert experts.sigmoid is not None
    experts = replace(experts, sigmoid=replace(experts.sigmoid, least=LEAST_WEIGHT))
    return replace(config, experts=experts if experts.layers else None)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    found = lfm2.sources(config) | chosen_sources(config, "feed_forward", MIXTRAL_PARTS)
    experts = config.experts
    if experts is None:
        return found
    for layer in sorted(experts.layers):
        bias = vector(f"layers.{layer}.feed_forward.expert_bias", experts.count)
        found[f"layer.{layer}.choice_bias"] = replace(bias, wide=True)
    return found
