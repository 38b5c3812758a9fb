"""OLMoE: LLaMA's tensor names, RMSNorms over the whole rows of q and k, experts in every layer."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import expert_sources, read_experts
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=16, hidden=2048, heads=16, ffn=2048, vocabulary=50304, positions=4096,
                    eps=1e-5)  # fmt: skip
sources = expert_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = with_biases(read_decoder(fields, "olmoe", DEFAULTS), fields)
    experts = read_experts(
        fields, range(config.layers), fields.flag("norm_topk_prob", False),
        ("num_experts", "num_local_experts"), 64, 8, "intermediate_size", DEFAULTS.ffn,
    )  # fmt: skip
    return replace(config, head_norms="row", experts=experts)
