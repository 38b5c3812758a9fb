"""Qwen2 and Qwen2.5: LLaMA's tensor names, biases on q, k and v only."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_layer_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


WINDOW, FULL_LAYERS = 4096, 28  # of Qwen's configurations
DEFAULTS = Defaults(kv_heads=32, ffn=22016, vocabulary=151936, positions=32768)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "qwen2", DEFAULTS)
    return replace(config, qkv_bias=True, windows=read_qwen_windows(fields, config))


def read_qwen_windows(fields: Fields, config: ModelConfig) -> tuple[int, ...]:
    """Layers from max_window_layers on have a sliding window where use_sliding_window is set."""
    full = fields.integer("max_window_layers", FULL_LAYERS, 0)
    return read_layer_windows(fields, config, WINDOW, lambda layer: layer >= full)
