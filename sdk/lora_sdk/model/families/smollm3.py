"""SmolLM3: LLaMA with some layers without rotary positions, and a sliding window in those."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_layer_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=36, hidden=2048, heads=16, kv_heads=4, ffn=11008, vocabulary=128256, positions=32768,
    theta=2e6, tied=True,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = with_biases(read_decoder(fields, "smollm3", DEFAULTS), fields)
    unrotated = read_unrotated(fields, config.layers)
    windows = read_layer_windows(fields, config, None, lambda layer: layer in unrotated)
    fields.raw("max_window_layers")
    return replace(config, unrotated=unrotated, windows=windows)


def read_unrotated(fields: Fields, layers: int) -> frozenset[int]:
    """Layers with a 0 in no_rope_layers, or without that list every no_rope_layer_interval-th."""
    interval = fields.integer("no_rope_layer_interval", 4)
    flags = fields.raw("no_rope_layers")[1]
    if flags is None:
        return frozenset(range(interval - 1, layers, interval))
    known = isinstance(flags, list) and all(type(flag) is int and flag in (0, 1) for flag in flags)
    if not known or len(flags) < layers:
        raise fields.error("no_rope_layers", flags, f"a list of {layers} zeros and ones")
    return frozenset(layer for layer in range(layers) if not flags[layer])
