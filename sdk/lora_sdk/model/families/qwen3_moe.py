"""Qwen3-MoE: Qwen3 with experts in some layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import expert_sources, read_experts
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, with_biases
from lora_sdk.model.families.qwen2 import WINDOW
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_layer_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=24, hidden=2048, kv_heads=4, ffn=6144, vocabulary=151936,
                    positions=32768)  # fmt: skip
sources = expert_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = with_biases(read_decoder(fields, "qwen3_moe", DEFAULTS), fields)
    experts = read_experts(
        fields, sparse_layers(fields, config.layers), fields.flag("norm_topk_prob", False),
        ("num_experts", "num_local_experts"), 128, 8, "moe_intermediate_size", 768,
    )  # fmt: skip
    fields.raw("max_window_layers")  # is not read: windows are in all layers or in none
    windows = read_layer_windows(fields, config, WINDOW, lambda layer: True)
    return replace(config, head_norms="heads", windows=windows, experts=experts)


def sparse_layers(fields: Fields, layers: int) -> Iterator[int]:
    """Layers with experts: every decoder_sparse_step-th but those of mlp_only_layers."""
    step = fields.integer("decoder_sparse_step", 1)
    dense = fields.raw("mlp_only_layers", [])[1]
    known = range(layers)
    if not isinstance(dense, list) or any(type(one) is not int for one in dense):
        raise fields.error("mlp_only_layers", dense, "a list of layers")
    if any(one not in known for one in dense):
        raise fields.error("mlp_only_layers", dense, f"layers in 0..{layers - 1}")
    return (one for one in known if (one + 1) % step == 0 and one not in dense)
