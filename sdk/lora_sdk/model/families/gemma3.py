"""Gemma 3's text model: Gemma 2 with norms of each head of q and k in place of soft caps, and other
rotary positions in layers with a window than in those without."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.families.gemma import GELU
from lora_sdk.model.families.gemma2 import WINDOW, read_cap, read_gemma2
from lora_sdk.model.families.llama import PREFIXES as LLAMA_PREFIXES
from lora_sdk.model.families.llama import PROBE, sources
from lora_sdk.model.fields import Fields
from lora_sdk.model.rope_fields import read_rope, scaled_positions
from lora_sdk.model.spec import ModelConfig, RopeConfig, RopeKind
from lora_sdk.model.windows import FULL, SLIDING, read_periodic_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

# Multimodal folders have their text model under one of the last two, beside the vision tower.
PREFIXES = (*LLAMA_PREFIXES, "language_model.model.", "model.language_model.")
IGNORED = re.compile(
    r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
    r"|(model\.)?(vision_tower|multi_modal_projector)\..+"
)
DEFAULTS = Defaults(
    layers=26, hidden=2304, heads=8, kv_heads=4, head_dim=256, ffn=9216, vocabulary=262208,
    positions=131072, tied=True, activation="gelu_pytorch_tanh", activations=GELU, theta=None,
)  # fmt: skip
PERIOD = 6
THETA, LOCAL_THETA = 1e6, 1e4
LOCAL_KINDS: Mapping[str, RopeKind] = {"default": "default", "linear": "linear"}


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_gemma2(fields, "gemma3_text", DEFAULTS)
    period = fields.integer("sliding_window_pattern", PERIOD)
    fields.raw("_sliding_window_pattern")  # a copy that transformers writes beside layer_types
    rope, local = read_ropes(fields, config)
    config = replace(config, positions=scaled_positions(rope, config.positions))
    windows, sliding = read_periodic_windows(fields, config, WINDOW, period)
    return replace(
        config,
        head_norms="heads",
        windows=windows,
        score_cap=read_cap(fields, "attn_logit_softcapping", 0.0),
        logit_cap=read_cap(fields, "final_logit_softcapping", 0.0),
        rope=rope,
        local_rope=local,
        local_layers=sliding,
    )


def read_ropes(fields: Fields, config: ModelConfig) -> tuple[RopeConfig, RopeConfig]:
    """Rotary positions of the layers that see all, and of those that slide: each an object of
    `rope_parameters`, or by the older fields. ModelError names one that is wrong."""
    theta = fields.number("rope_theta", THETA, 1)
    local_theta = fields.number("rope_local_base_freq", LOCAL_THETA, 1)
    both = fields.raw("rope_parameters")[1]
    scaling = fields.raw("rope_scaling")[1]
    if both is None:
        both = {FULL: scaling}
    elif not isinstance(both, dict) or not set(both) <= {FULL, SLIDING}:
        raise fields.error("rope_parameters", both, f"an object with {FULL} and {SLIDING}")
    elif scaling is not None:
        raise fields.error("rope_scaling", scaling, "null beside rope_parameters")
    return (
        _rope(fields, both.get(FULL), config, theta, None),
        _rope(fields, both.get(SLIDING), config, local_theta, LOCAL_KINDS),
    )


def _rope(
    fields: Fields,
    parameters: Any,
    config: ModelConfig,
    theta: float,
    kinds: Mapping[str, RopeKind] | None,
) -> RopeConfig:
    one = Fields({"rope_parameters": parameters}, fields.where)
    return read_rope(
        one, config.positions, default_theta=theta, head_dim=config.head_dim, kinds=kinds
    )
