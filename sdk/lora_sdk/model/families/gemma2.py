"""Gemma 2: Gemma with norms on both sides of each branch, soft caps of scores and logits, and a
sliding window in every second layer."""

from __future__ import annotations

import math
from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.families.gemma import GELU, read_gemma
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE, sources
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_periodic_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=26, hidden=2304, heads=8, kv_heads=4, head_dim=256, ffn=9216, vocabulary=256000,
    positions=8192, tied=True, activation="gelu_pytorch_tanh", activations=GELU,
)  # fmt: skip
SCALAR = 256.0
WINDOW = 4096


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_gemma2(fields, "gemma2", DEFAULTS)
    return replace(
        config,
        windows=read_periodic_windows(fields, config, WINDOW, period=2)[0],
        score_cap=read_cap(fields, "attn_logit_softcapping", 50.0),
        logit_cap=read_cap(fields, "final_logit_softcapping", 30.0),
    )


def read_gemma2(fields: Fields, architecture: str, defaults: Defaults) -> ModelConfig:
    """What Gemma 2 and 3 have in common."""
    config = read_gemma(fields, architecture, defaults, "hidden_activation")
    fields.raw("hidden_act")  # an older name, which transformers does not read either
    scalar = fields.number("query_pre_attn_scalar", SCALAR)
    return replace(config, branch_norms="both", score_factor=1 / math.sqrt(scalar))


def read_cap(fields: Fields, name: str, default: float) -> float:
    """A soft bound; 0, none, where the file says null."""
    if name in fields.values and fields.values[name] is None:
        default = 0.0
    return fields.number(name, default) if default or fields.has(name) else 0.0
