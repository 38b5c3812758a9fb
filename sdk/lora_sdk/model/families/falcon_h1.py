"""Falcon-H1: attention and Mamba2's scan side by side in each layer, with factors of everything."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families import llama
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.mamba import MAMBA_NAMES, read_scan, scan_sources
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(kv_heads=8, ffn=14336, vocabulary=128000, positions=8192, eps=1e-5)
PARTS = ("z", "x", "b", "c", "dt")  # of ssm_multipliers
FILES = ((".mlp.", ".feed_forward."), ("post_attention_layernorm", "pre_ff_layernorm"))


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"):
        fields.only(name, (False,), "biases of matmuls")
    config = read_decoder(fields, "falcon_h1", DEFAULTS)
    values = fields.integer("mamba_expand", 2) * config.hidden
    values = fields.integer("mamba_d_ssm", 1024 if "mamba_d_ssm" not in fields.values else values)
    normed = fields.flag("mamba_rms_norm", False)
    if normed and fields.flag("mamba_norm_before_gate", True):
        raise fields.error("mamba_norm_before_gate", True, "false: a norm behind the gate")
    fields.raw(("mamba_norm_before_gate", "mamba_chunk_size", "num_logits_to_keep"))
    layers = frozenset(range(config.layers))
    recurrent = read_scan(fields, MAMBA_NAMES, layers, values, normed=normed)
    own = fields.number("ssm_in_multiplier", 1.0)
    by = dict(zip(PARTS, _numbers(fields, "ssm_multipliers", len(PARTS)), strict=True))
    z, x, b, c, dt = (own * by[part] for part in PARTS)
    recurrent = replace(recurrent, factors=(c, b, x, dt, z), beside=True)
    return _with_factors(replace(config, recurrent=recurrent), fields)


def _with_factors(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Those of attention's input are factors of scores and of its output."""
    into = fields.number("attention_in_multiplier", 1.0)
    out = fields.number("attention_out_multiplier", 1.0)
    gate, down = _numbers(fields, "mlp_multipliers", 2)
    key = fields.number("key_multiplier", 1.0)
    return replace(
        config,
        embed_scale=fields.number("embedding_multiplier", 1.0),
        logit_scale=fields.number("lm_head_multiplier", 1.0),
        score_factor=into * into * key / sqrt(config.head_dim),
        gate_scale=gate,
        mixer_scales=(into * out, fields.number("ssm_out_multiplier", 1.0), down),
    )


def _numbers(fields: Fields, name: str, count: int) -> list[float]:
    """As many positive numbers; ones where there are none."""
    found = fields.raw(name)[1]
    if found is None:
        return [1.0] * count
    known = isinstance(found, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and 1e-12 <= one <= 1e12
        for one in found
    )
    if not known or len(found) != count:
        raise fields.error(name, found, f"{count} numbers in 1e-12..1e12")
    return [float(one) for one in found]


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    found = {}
    for name, source in llama.sources(config).items():
        tensor = source.tensor
        for own, file in FILES:
            tensor = tensor.replace(own, file)
        found[name] = replace(source, tensor=tensor)
    final = found["final_norm.gamma"]
    found["final_norm.gamma"] = replace(final, tensor="final_layernorm.weight")
    for layer in range(config.layers):
        found.update(scan_sources(config, layer, f"layers.{layer}.mamba"))
    return found
