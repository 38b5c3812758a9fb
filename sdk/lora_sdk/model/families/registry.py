"""What the file of a family has, and which one a model_type means, a row each."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Protocol, cast

from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig


class Family(Protocol):
    """What a family's file, a module, has."""

    @property
    def PREFIXES(self) -> tuple[str, ...]:
        """What its tensors' names may begin with, the model's own library's prefix first."""

    @property
    def PROBE(self) -> str:
        """A tensor that every checkpoint has."""

    @property
    def IGNORED(self) -> re.Pattern[str]:
        """Names of buffers that mean nothing."""

    def normalize(self, fields: Fields, /) -> ModelConfig:
        """The configuration of config.json's fields; ModelError names one that is wrong."""

    def sources(self, config: ModelConfig, /) -> dict[str, Source]:
        """Canonical name -> where it lies in the files, lm_head only where it is not tied."""


FAMILIES: dict[str, str | Family] = {
    "gpt2": "gpt2",
    "opt": "opt",
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "gptj": "gptj",
    "gpt_neox": "gpt_neox",
    "phi": "phi",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "phi3": "phi3",
    "gpt_bigcode": "gpt_bigcode",
    "qwen3": "qwen3",
    "olmo2": "olmo2",
    "granite": "granite",
    "smollm3": "smollm3",
    "bloom": "bloom",
    "cohere": "cohere",
    "mpt": "mpt",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "mixtral": "mixtral",
    "qwen3_moe": "qwen3_moe",
    "olmoe": "olmoe",
    "granitemoe": "granitemoe",
    "qwen2_moe": "qwen2_moe",
    "granitemoeshared": "granitemoeshared",
    "glm4_moe": "glm4_moe",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3",
    "glm4_moe_lite": "glm4_moe_lite",
    "gpt_oss": "gpt_oss",
    "lfm2": "lfm2",
    "qwen3_next": "qwen3_next",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "lfm2_moe": "lfm2_moe",
    "granitemoehybrid": "granitemoehybrid",
    "falcon_h1": "falcon_h1",
    "nemotron_h": "nemotron_h",
}
"""By model_type: the file's name, or a module of another package."""


def family(name: str) -> Family:
    """That of a row, read when it is first asked for. KeyError: there is none."""
    found = FAMILIES[name]
    if isinstance(found, str):
        found = cast(Family, import_module(f"lora_sdk.model.families.{found}"))
    return found
