"""GraniteMoE: Granite with experts in every layer, those of a layer in two tensors."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import read_experts
from lora_sdk.model.families import llama
from lora_sdk.model.families.granite import with_factors
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, linear
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(ffn=11008, vocabulary=32000, positions=2048)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    return read(fields, "granitemoe")


def read(fields: Fields, architecture: str) -> ModelConfig:
    """The configuration of GraniteMoE's fields."""
    config = with_biases(read_decoder(fields, architecture, DEFAULTS), fields)
    experts = read_experts(
        fields, range(config.layers), True, ("num_local_experts", "num_experts"), 8, 2,
        "intermediate_size", DEFAULTS.ffn,
    )  # fmt: skip
    return with_factors(replace(config, experts=experts), fields)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files: gate and up of an expert, then of the next."""
    found, experts, d = llama.sources(config), config.experts, config.hidden
    assert experts is not None
    count, ffn = experts.count, experts.ffn
    for layer in range(config.layers):
        lead, name = f"layers.{layer}.block_sparse_moe", f"layer.{layer}"
        found[f"{name}.router"] = linear(f"{lead}.router.layer.weight", d, count)
        both, down = f"{lead}.input_linear.weight", f"{lead}.output_linear.weight"
        for number in range(count):
            own = f"{name}.expert.{number}"
            shape, first = (count, 2 * ffn, d), 2 * ffn * number
            found[f"{own}.gate"] = Source(both, "oi", shape, first, ffn)
            found[f"{own}.up"] = Source(both, "oi", shape, first + ffn, ffn)
            found[f"{own}.down"] = Source(down, "oi", (count, d, ffn), d * number, d)
    return found
