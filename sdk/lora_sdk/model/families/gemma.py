"""Gemma: GeGLU, RMSNorms that multiply by 1 + w, scaled embeddings. Its residuals exceed FP16, so
boards hold the stream times a power of two (docs/numbers.md, 3.15)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources, with_biases
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import Activation, ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

STREAM_SCALE = 2.0**-6
GELU: Mapping[str, Activation] = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
# Of Gemma 1 "gelu" in the file means the tanh form, too.
DEFAULTS = Defaults(
    layers=28, hidden=3072, heads=16, kv_heads=16, head_dim=256, ffn=24576, vocabulary=256000,
    positions=8192, tied=True, activation="gelu_pytorch_tanh",
    activations={**GELU, "gelu": "gelu_tanh"},
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    return read_gemma(fields, "gemma", DEFAULTS, ("hidden_activation", "hidden_act"))


def read_gemma(
    fields: Fields, architecture: str, defaults: Defaults, act_name: str | tuple[str, ...]
) -> ModelConfig:
    """What all Gemmas have in common. ModelError names a field that is wrong or not supported."""
    fields.only("use_bidirectional_attention", (False,), "bidirectional attention")
    config = read_decoder(fields, architecture, defaults, act_name=act_name)
    return replace(
        with_biases(config, fields),
        gated=True,
        one_plus=True,
        embed_scale=math.sqrt(config.hidden),
        stream_scale=STREAM_SCALE,
    )
