"""GraniteMoE with an expert of every row beside the others, without a gate."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.experts import read_shared
from lora_sdk.model.families import granitemoe
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = granitemoe.read(fields, "granitemoeshared")
    assert config.experts is not None
    experts = read_shared(fields, config.experts, "shared_intermediate_size", 1024, gated=False)
    return replace(config, experts=experts)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files: gate and up of the shared expert in one."""
    found, experts, d = granitemoe.sources(config), config.experts, config.hidden
    assert experts is not None
    width = experts.shared
    for layer in range(config.layers) if width else ():
        lead, name = f"layers.{layer}.shared_mlp", f"layer.{layer}.shared"
        both = f"{lead}.input_linear.weight"
        found[f"{name}.gate"] = Source(both, "oi", (2 * width, d), 0, width)
        found[f"{name}.up"] = Source(both, "oi", (2 * width, d), width, width)
        down = f"{lead}.output_linear.weight"
        found[f"{name}.down"] = Source(down, "oi", (d, width), 0, d)
    return found
