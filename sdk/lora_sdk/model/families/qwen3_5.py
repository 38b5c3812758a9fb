"""Qwen3.5's text models: Qwen3-Next's layers with an MLP in place of the experts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.families.llama import PROBE
from lora_sdk.model.families.qwen3_next import hybrid_sources, read_hybrid
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, linear
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

PREFIXES = ("model.", "model.language_model.", "")
IGNORED = re.compile(r"mtp\..+|(model\.)?visual\..+")
DEFAULTS = Defaults(
    layers=32, hidden=4096, heads=16, kv_heads=4, head_dim=256, ffn=12288, vocabulary=248320,
    positions=32768, rotary=0.25,
)  # fmt: skip
SECTIONS = ("mrope_section", "mrope_interleaved")
"""How rotary positions are shared by the axes of images; those of a text are the same on each."""


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    return read_text(fields, "qwen3_5_text", DEFAULTS)


def read_text(fields: Fields, architecture: str, defaults: Defaults) -> ModelConfig:
    """Without the sections of rotary positions: those of a text are the same in each."""
    fields.values = {name: _of_text(value) for name, value in fields.values.items()}
    return read_hybrid(fields, architecture, defaults)


def _of_text(value: Any) -> Any:
    """An object of rotary parameters without its sections."""
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if name not in SECTIONS}


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    return hybrid_sources(config, _inputs)


def _inputs(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    recurrent, lead = config.recurrent, f"layers.{layer}.linear_attn"
    assert recurrent is not None
    keys, values, name = recurrent.keys, recurrent.values, f"layer.{layer}.mix"
    shape = (2 * keys + values, config.hidden)
    for part, first, count in (("q", 0, keys), ("k", keys, keys), ("v", 2 * keys, values)):
        yield f"{name}.{part}", Source(f"{lead}.in_proj_qkv.weight", "oi", shape, first, count)
    for part, outputs in (
        ("z", values),
        ("a", recurrent.value_heads),
        ("b", recurrent.value_heads),
    ):
        yield f"{name}.{part}", linear(f"{lead}.in_proj_{part}.weight", config.hidden, outputs)
