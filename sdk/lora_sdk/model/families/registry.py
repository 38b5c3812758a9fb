"""What the file of a family has, and which one a model_type means, a row each."""

from __future__ import annotations

import re
from typing import Protocol

from lora_sdk.model.families import (
    bloom,
    deepseek_v2,
    deepseek_v3,
    falcon,
    falcon_h1,
    gemma,
    gemma2,
    gemma3,
    glm4_moe,
    glm4_moe_lite,
    gpt2,
    gpt_bigcode,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    granitemoe,
    granitemoehybrid,
    granitemoeshared,
    lfm2,
    lfm2_moe,
    llama,
    mixtral,
    mpt,
    nemotron_h,
    olmo2,
    olmoe,
    opt,
    phi,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_5,
    qwen3_5_moe,
    qwen3_moe,
    qwen3_next,
    smollm3,
    stablelm,
    starcoder2,
)
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


FAMILIES: dict[str, Family] = {
    "gpt2": gpt2,
    "opt": opt,
    "llama": llama,
    "mistral": llama,
    "qwen2": qwen2,
    "gptj": gptj,
    "gpt_neox": gpt_neox,
    "phi": phi,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "phi3": phi3,
    "gpt_bigcode": gpt_bigcode,
    "qwen3": qwen3,
    "olmo2": olmo2,
    "granite": granite,
    "smollm3": smollm3,
    "bloom": bloom,
    "mpt": mpt,
    "falcon": falcon,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
    "olmoe": olmoe,
    "granitemoe": granitemoe,
    "qwen2_moe": qwen2_moe,
    "granitemoeshared": granitemoeshared,
    "glm4_moe": glm4_moe,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "glm4_moe_lite": glm4_moe_lite,
    "gpt_oss": gpt_oss,
    "lfm2": lfm2,
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe_text": qwen3_5_moe,
    "lfm2_moe": lfm2_moe,
    "granitemoehybrid": granitemoehybrid,
    "falcon_h1": falcon_h1,
    "nemotron_h": nemotron_h,
}
