"""DeepSeek-V2: latent attention; behind dense layers experts by softmax routing, in groups or not,
and one of every row beside them."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.experts import read_experts, read_groups
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.latent_fields import EXTRA_LAYERS, LatentDefaults, latent_sources, read_latent
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(ffn=11008, vocabulary=102400, positions=2048, theta=None)
LATENT = LatentDefaults(q=1536, nope=128, values=128)
METHODS = {"greedy": False, "group_limited_greedy": True}
sources = latent_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_latent(fields, "deepseek_v2", DEFAULTS, LATENT)
    for name, allowed, what in (
        ("mlp_bias", (False,), "biases of the MLP"),
        ("norm_topk_prob", (False,), "experts' weights that are divided by their sum"),
        ("moe_layer_freq", (1,), "experts in some layers behind the dense ones"),
        ("scoring_func", ("softmax",), "another routing"),
    ):
        fields.only(name, allowed, what)
    dense = fields.integer("first_k_dense_replace", 0, 0)
    experts = read_experts(
        fields, range(dense, config.layers), False, ("n_routed_experts", "num_experts"), 64, 6,
        "moe_intermediate_size", 1407,
    )  # fmt: skip
    if fields.choice("topk_method", "greedy", METHODS):
        experts = read_groups(fields, experts)
    shared = experts.ffn * fields.integer("n_shared_experts", 2, high=64)
    factor = fields.number("routed_scaling_factor", 1.0)
    fields.raw(("n_group", "topk_group"))  # which the other method reads
    return replace(
        config,
        extra_layers=fields.integer(EXTRA_LAYERS, 0, 0, 64),
        experts=replace(experts, shared=shared, factor=factor) if experts.layers else None,
    )
