"""Mixtral: Mistral with experts in every layer, whose weights are renormalized."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import MIXTRAL_PARTS, expert_sources, read_experts
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_window

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(kv_heads=8, ffn=14336, vocabulary=32000, positions=4096 * 32, eps=1e-5,
                    theta=1e6)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "mixtral", DEFAULTS)
    experts = read_experts(
        fields, range(config.layers), True, ("num_local_experts", "num_experts"), 8, 2,
        "intermediate_size", DEFAULTS.ffn,
    )  # fmt: skip
    return replace(config, experts=experts, windows=read_window(fields, config))


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    return expert_sources(config, "block_sparse_moe", MIXTRAL_PARTS)
