"""Mixtures of experts of families that are LLaMA's otherwise: fields and tensor names."""

from __future__ import annotations

from collections.abc import Iterable

from lora_host import abi
from lora_sdk.model import llama
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, linear
from lora_sdk.model.spec import ExpertConfig, ModelConfig

PARTS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
MIXTRAL_PARTS = {"gate": "w1", "up": "w3", "down": "w2"}


def read_experts(
    fields: Fields,
    layers: Iterable[int],
    renormalize: bool,
    count_names: str | tuple[str, ...],
    count: int,
    chosen: int,
    ffn_name: str,
    ffn: int,
) -> ExpertConfig:
    """The experts of `layers`; `count`, `chosen` and `ffn` are what fields that are absent mean.
    ModelError: a number out of range, more chosen than there are, a quantized model."""
    fields.only("quantization_config", (), "a quantized mixture of experts")
    found = fields.integer(count_names, count, high=abi.MAX_EXPERTS)
    high = min(found, abi.MAX_CHOSEN)
    return ExpertConfig(
        count=found,
        chosen=fields.integer("num_experts_per_tok", chosen, high=high),
        ffn=fields.integer(ffn_name, ffn),
        renormalize=renormalize,
        layers=frozenset(layers),
    )


def expert_sources(
    config: ModelConfig, module: str = "mlp", parts: dict[str, str] | None = None
) -> dict[str, Source]:
    """LLaMA's sources, with a router and the matrices of each expert in `module` of the layers that
    have some; `parts`: the file's names of gate, up and down."""
    found, experts, d = llama.sources(config), config.experts, config.hidden
    assert experts is not None
    for layer in sorted(experts.layers):
        lead, name = f"layers.{layer}.{module}", f"layer.{layer}"
        found[f"{name}.router"] = linear(f"{lead}.gate.weight", d, experts.count)
        for expert in range(experts.count):
            for part, file in (parts or PARTS).items():
                sizes = (experts.ffn, d) if part == "down" else (d, experts.ffn)
                tensor = f"{lead}.experts.{expert}.{file}.weight"
                found[f"{name}.expert.{expert}.{part}"] = linear(tensor, *sizes)
    return found
