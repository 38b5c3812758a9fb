"""config.json of a Hugging Face folder -> ModelConfig."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

from lora_sdk.model import gpt2, llama, opt
from lora_sdk.model.fields import Fields
from lora_sdk.model.json_file import read_json
from lora_sdk.model.methods import read_quantization
from lora_sdk.model.refused import HARMLESS, refuse_unsupported
from lora_sdk.model.spec import ModelConfig, RopeConfig

__all__ = [
    "ARCHITECTURES",
    "ModelConfig",
    "RopeConfig",
    "architecture_module",
    "load_config",
    "read_json",
]

ARCHITECTURES: dict[str, ModuleType] = {"gpt2": gpt2, "opt": opt, "llama": llama, "mistral": llama}


def load_config(folder: str | Path) -> ModelConfig:
    """Read config.json, and the token ids of generation_config.json where there is one.

    Raises ModelError with one line that names the file and the field: missing or malformed file,
    unknown architecture, a field of the wrong type or range, arithmetic that is not supported.
    """
    path = Path(folder) / "config.json"
    fields = Fields(read_json(path), str(path))
    module = _architecture(fields)
    refuse_unsupported(fields)
    config: ModelConfig = module.normalise(fields)
    found = read_quantization(fields, config, module.sources(config), module.PREFIXES[0])
    config = replace(config, quantization=found)
    config = _with_ids(config, fields)
    fields.warn_unknown(HARMLESS)
    generation = Path(folder) / "generation_config.json"
    if generation.exists():
        config = _with_ids(config, Fields(read_json(generation), str(generation)))
    return config


def architecture_module(config: ModelConfig) -> ModuleType:
    """The module that knows the tensor names of `config`."""
    return ARCHITECTURES[config.architecture]


def _architecture(fields: Fields) -> ModuleType:
    kind = fields.raw("model_type")[1]
    if isinstance(kind, str) and kind in ARCHITECTURES:
        return ARCHITECTURES[kind]
    raise fields.error("model_type", kind, "a supported architecture: " + ", ".join(ARCHITECTURES))


def _with_ids(config: ModelConfig, fields: Fields) -> ModelConfig:
    """`config` with the token ids that `fields` gives; what it leaves out stays."""
    bos, eos, pad = (fields.ids(f"{name}_token_id") for name in ("bos", "eos", "pad"))
    return replace(
        config,
        bos=bos[0] if bos else config.bos,
        eos=eos or config.eos,
        pad=pad[0] if pad else config.pad,
    )
