"""Qwen2 and Qwen2.5: LLaMA's tensor names, biases on q, k and v only."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.fields import Fields
from lora_sdk.model.llama import IGNORED, PREFIXES, PROBE, sources
from lora_sdk.model.refused import refuse_layer_types
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


DEFAULTS = Defaults(kv_heads=32, ffn=22016, vocabulary=151936, positions=32768)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    refuse_qwen_window(fields)
    return replace(read_decoder(fields, "qwen2", DEFAULTS), qkv_bias=True)


def refuse_qwen_window(fields: Fields) -> None:
    """ModelError: layers with a sliding window. Without use_sliding_window its size means none."""
    fields.only("use_sliding_window", (False,), "a sliding window in some layers")
    for name in ("sliding_window", "max_window_layers"):
        fields.raw(name)
    refuse_layer_types(fields)
