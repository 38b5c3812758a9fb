"""Qwen3: LLaMA's tensor names, an RMSNorm of each head of q and k."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources, with_biases
from lora_sdk.model.families.qwen2 import read_qwen_windows
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(kv_heads=32, head_dim=128, ffn=22016, vocabulary=151936, positions=32768)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = with_biases(read_decoder(fields, "qwen3", DEFAULTS), fields)
    return replace(config, head_norms="heads", windows=read_qwen_windows(fields, config))
