"""config.json of a Hugging Face folder -> ModelConfig."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lora_host.errors import ModelError
from lora_sdk.model.families.registry import FAMILIES, Family, family
from lora_sdk.model.fields import Fields
from lora_sdk.model.json_file import read_json
from lora_sdk.model.model_files import CONFIG, GENERATION, model_files
from lora_sdk.model.refused import HARMLESS, refuse_unsupported, unknown_model_type
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


def model_types() -> tuple[str, ...]:
    """Every `model_type` that is supported."""
    return tuple(FAMILIES)


def register_family(name: str, module: Family) -> None:
    """Adds a `model_type`; its configurations have this `architecture`. ModelError: it is taken."""
    if name in FAMILIES:
        raise ModelError(f"model_type {name!r} is registered already; choose another name")
    FAMILIES[name] = module


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
    return family(config.architecture)


def normalize(fields: Fields) -> ModelConfig:
    """The configuration by the family that `model_type` names. ModelError: an unknown family, a
    field of the wrong type or range, arithmetic that is not supported."""
    kind = fields.raw("model_type")[1]
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise unknown_model_type(fields, kind, FAMILIES)
    config = family(kind).normalize(fields)
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
