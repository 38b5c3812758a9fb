"""Qwen2-MoE: Qwen2 with experts in some layers, and beside them one of every row, which a sigmoid
gates."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import gated_sources, read_experts, read_shared
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.families.qwen2 import FULL_LAYERS, WINDOW
from lora_sdk.model.families.qwen3_moe import sparse_layers
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_layer_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=24, hidden=2048, heads=16, kv_heads=16, ffn=5632, vocabulary=151936,
                    positions=32768)  # fmt: skip
sources = gated_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "qwen2_moe", DEFAULTS)
    experts = read_experts(
        fields, sparse_layers(fields, config.layers), fields.flag("norm_topk_prob", False),
        ("num_experts", "num_local_experts"), 60, 4, "moe_intermediate_size", 1408,
    )  # fmt: skip
    experts = read_shared(fields, experts, "shared_expert_intermediate_size", 5632, gated=True)
    full = fields.integer("max_window_layers", FULL_LAYERS, 0)
    windows = read_layer_windows(
        fields, config, WINDOW, lambda layer: layer % 2 == 0 and layer < full
    )
    bias = fields.flag("qkv_bias", True)
    return replace(config, qkv_bias=bias, windows=windows, experts=experts)
