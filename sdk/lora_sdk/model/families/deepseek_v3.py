"""DeepSeek-V3: latent attention; behind dense layers experts by sigmoid routing in groups, and one
of every row beside them."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.experts import read_experts, read_sigmoid
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.latent_fields import EXTRA_LAYERS, LatentDefaults, latent_sources, read_latent
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=61, hidden=7168, heads=128, ffn=18432, vocabulary=129280,
                    positions=4096, theta=None)  # fmt: skip
LATENT = LatentDefaults(q=1536, nope=128, values=128)
sources = latent_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_latent(fields, "deepseek_v3", DEFAULTS, LATENT)
    for name, allowed, what in (
        ("moe_layer_freq", (1,), "experts in some layers behind the dense ones"),
        ("scoring_func", ("sigmoid",), "another routing"),
        ("topk_method", ("noaux_tc",), "another routing"),
    ):
        fields.only(name, allowed, what)
    dense = fields.integer("first_k_dense_replace", 3, 0)
    experts = read_experts(
        fields, range(dense, config.layers), fields.flag("norm_topk_prob", True),
        ("n_routed_experts", "num_local_experts"), 256, 8, "moe_intermediate_size", 2048,
    )  # fmt: skip
    experts = read_sigmoid(fields, experts, 8, 4, 2.5)
    shared = experts.ffn * fields.integer("n_shared_experts", 1, high=64)
    return replace(
        config,
        extra_layers=fields.integer(EXTRA_LAYERS, 1, 0, 64),
        experts=replace(experts, shared=shared) if experts.layers else None,
    )
