"""Nemotron-H: layers of one kind each, Mamba2's, attention without positions, or an MLP of squared
ReLUs."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.fields import Fields
from lora_sdk.model.mamba import ATTENTION, MAMBA, ScanNames, read_scan, scan_sources
from lora_sdk.model.source import Source, head, linear, norm, table
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

PREFIXES = ("model.", "backbone.", "")
PROBE = "embeddings.weight"
IGNORED = re.compile(r"mtp\..+")
DEFAULTS = Defaults(
    layers=4, heads=32, kv_heads=8, head_dim=128, ffn=21504, vocabulary=131072, positions=4096,
    eps=1e-5, theta=None, activation="relu2", activations={"relu2": "relu2"},
)  # fmt: skip
NAMES = ScanNames(
    "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel",
    "use_conv_bias", (128, 64, 8, 128, 4),
)  # fmt: skip
KINDS = ("layers_block_type", "layer_types")
PATTERN = {"M": MAMBA[0], "*": ATTENTION[0], "-": "mlp", "E": "moe"}
UNREAD = ("expand", "time_step_max", "time_step_floor", "time_step_limit", "chunk_size",
          "use_mamba_kernels", "num_logits_to_keep", "rescale_prenorm_residual",
          "mamba_ssm_cache_dtype", "rope_theta", "partial_rotary_factor",
          "num_experts_per_tok", "n_routed_experts", "num_local_experts", "moe_intermediate_size",
          "num_hidden_layers")  # fmt: skip
"""Of training, of rotary positions that there are none of, of experts that no layer has."""


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"):
        fields.only(name, (False,), "biases of matmuls")
    fields.only("residual_in_fp32", (False,), "a residual stream in FP32")
    fields.only("mamba_hidden_act", ("silu",), "another activation of the convolution")
    fields.only("sliding_window", (), "a sliding window")
    fields.only("tie_word_embeddings", (False,), "a tied lm_head")
    kinds = _layer_kinds(fields)
    fields.values = {**fields.values, "num_hidden_layers": len(kinds)}
    config = read_decoder(fields, "nemotron_h", DEFAULTS, "layer_norm_epsilon", "mlp_hidden_act")
    fields.raw(UNREAD)
    layers = _numbers(kinds, MAMBA)
    values = fields.integer(NAMES.heads, 128) * fields.integer(NAMES.head_dim, 64)
    limits = fields.number("time_step_min", 0.001, 0), math.inf
    recurrent = read_scan(fields, NAMES, layers, values, limits=limits)
    return replace(
        config,
        norm="rmsnorm",
        recurrent=recurrent if layers else None,
        without_mixer=_numbers(kinds, ("mlp",)),
        without_mlp=frozenset(range(config.layers)) - _numbers(kinds, ("mlp",)),
    )


def _numbers(kinds: list[str], wanted: tuple[str, ...]) -> frozenset[int]:
    return frozenset(layer for layer, kind in enumerate(kinds) if kind in wanted)


def _layer_kinds(fields: Fields) -> list[str]:
    """By the list, or by a letter for each layer."""
    name, kinds = fields.raw((*KINDS, "hybrid_override_pattern"))
    fields.raw("hybrid_override_pattern")
    if isinstance(kinds, str):
        kinds = [PATTERN.get(letter, letter) for letter in kinds]
    known = (*MAMBA, *ATTENTION, "mlp")
    if not isinstance(kinds, list) or not kinds or any(one not in known for one in kinds):
        raise fields.error(name, kinds, f"layers of {', '.join(known)}: experts are not supported")
    return kinds


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    d, ffn = config.hidden, config.ffn
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        "embed.token": table("embeddings.weight", config.vocabulary, d),
        **norm("final_norm", "norm_f", d, beta=False),
    }
    for layer in range(config.layers):
        name, lead = f"layer.{layer}", f"layers.{layer}.mixer"
        mlp = layer in config.without_mixer
        own = f"{name}.{'mlp' if mlp else 'attn'}_norm"
        found |= norm(own, f"layers.{layer}.norm", d, beta=False)
        attention = (("q", d, queries), ("k", d, keys), ("v", d, keys), ("o", queries, d))
        parts = (("up", d, ffn), ("down", ffn, d)) if mlp else attention
        if config.recurs(layer):
            found.update(scan_sources(config, layer, lead))
            continue
        for part, inputs, outputs in parts:
            found[f"{name}.{part}"] = linear(f"{lead}.{part}_proj.weight", inputs, outputs)
    return found | head("lm_head", d, config.vocabulary, config.tied, bias=False)
