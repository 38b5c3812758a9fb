"""config.json of a Hugging Face folder -> ModelConfig."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from lora_host.errors import ModelError
from lora_sdk.model import (
    bloom,
    falcon,
    gemma,
    gemma2,
    gemma3,
    glm4_moe,
    gpt2,
    gpt_bigcode,
    gpt_neox,
    gptj,
    granite,
    granitemoe,
    granitemoeshared,
    lfm2,
    llama,
    mixtral,
    mpt,
    olmo2,
    olmoe,
    opt,
    phi,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    smollm3,
    stablelm,
    starcoder2,
)
from lora_sdk.model.fields import Fields
from lora_sdk.model.json_file import read_json
from lora_sdk.model.model_files import CONFIG, GENERATION, model_files
from lora_sdk.model.refused import HARMLESS, refuse_unsupported, unknown_model_type
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig, RopeConfig
from lora_sdk.model.text_config import text_fields

__all__ = [
    "Family",
    "ModelConfig",
    "RopeConfig",
    "family_of",
    "load_config",
    "model_types",
    "normalize",
    "read_json",
    "register_family",
]


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


_FAMILIES: dict[str, Family] = {
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
    "lfm2": lfm2,
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_5,
}


def model_types() -> tuple[str, ...]:
    """Every `model_type` that is supported."""
    return tuple(_FAMILIES)


def register_family(name: str, family: Family) -> None:
    """Adds a `model_type`; its configurations have this `architecture`. ModelError: it is taken."""
    if name in _FAMILIES:
        raise ModelError(f"model_type {name!r} is registered already; choose another name")
    _FAMILIES[name] = family


def load_config(folder: str | Path) -> ModelConfig:
    """Read config.json, and the token ids of generation_config.json where there is one; or the
    metadata of a GGUF file.

    Raises ModelError with one line that names the file and the field: missing or malformed file,
    unknown architecture, a field of the wrong type or range, arithmetic that is not supported.
    """
    files = model_files(folder)
    where = str(files.path / CONFIG if files.path.is_dir() else files.path)
    fields = text_fields(Fields(files.config_values(), where))
    config = normalize(fields)
    found = files.quantization(fields, family_of(config), config)
    config = replace(config, quantization=found)
    config = _with_ids(config, fields)
    fields.warn_unknown(HARMLESS)
    generation = files.generation_values()
    if generation is not None:
        config = _with_ids(config, Fields(generation, str(files.path / GENERATION)))
    return config


def family_of(config: ModelConfig) -> Family:
    """The family that knows the tensor names of `config`."""
    return _FAMILIES[config.architecture]


def normalize(fields: Fields) -> ModelConfig:
    """The configuration by the family that `model_type` names. ModelError: an unknown family, a
    field of the wrong type or range, arithmetic that is not supported."""
    kind = fields.raw("model_type")[1]
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise unknown_model_type(fields, kind, _FAMILIES)
    config = _FAMILIES[kind].normalize(fields)
    refuse_unsupported(fields)
    return config


def _with_ids(config: ModelConfig, fields: Fields) -> ModelConfig:
    """`config` with the token ids that `fields` gives; what it leaves out stays."""
    bos, eos, pad = (fields.ids(f"{name}_token_id") for name in ("bos", "eos", "pad"))
    beyond = [token for token in eos if token >= config.vocabulary]
    if beyond:  # a default that was written with a small vocabulary
        fields.note(
            f"eos_token_id {beyond[0]} is beyond the vocabulary of {config.vocabulary} tokens and "
            "ends no text"
        )
        eos = tuple(token for token in eos if token not in beyond)
    return replace(
        config,
        bos=bos[0] if bos else config.bos,
        eos=eos or config.eos,
        pad=pad[0] if pad else config.pad,
    )
