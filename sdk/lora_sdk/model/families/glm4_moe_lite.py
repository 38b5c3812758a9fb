"""GLM-4-MoE-Lite (GLM-4.7-Flash): latent attention; experts by sigmoid routing, one of every row
beside them, in the layers that are not dense."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults
from lora_sdk.model.experts import read_experts, read_sigmoid
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.latent_fields import EXTRA_LAYERS, LatentDefaults, latent_sources, read_latent
from lora_sdk.model.recurrent import read_layer_kinds
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(layers=47, hidden=2048, heads=20, ffn=10240, vocabulary=154880,
                    positions=202752, eps=1e-5, theta=None)  # fmt: skip
LATENT = LatentDefaults(q=768, nope=192, values=256)
KINDS = "mlp_layer_types"
sources = latent_sources


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_latent(fields, "glm4_moe_lite", DEFAULTS, LATENT)
    for name, allowed, what in (
        ("scoring_func", ("sigmoid",), "another routing"),
        ("topk_method", ("noaux_tc",), "another routing"),
    ):
        fields.only(name, allowed, what)
    experts = read_experts(
        fields, _sparse(fields, config.layers), fields.flag("norm_topk_prob", True),
        ("n_routed_experts", "num_local_experts"), 64, 4, "moe_intermediate_size", 1536,
    )  # fmt: skip
    experts = read_sigmoid(fields, experts, factor=1.8)
    shared = experts.ffn * fields.integer("n_shared_experts", 1, high=64)
    return replace(
        config,
        extra_layers=fields.integer(EXTRA_LAYERS, 1, 0, 64),
        experts=replace(experts, shared=shared) if experts.layers else None,
    )


def _sparse(fields: Fields, layers: int) -> frozenset[int]:
    """The layers that have experts: those that mlp_layer_types says, else all but the first.
    ModelError: first_k_dense_replace says otherwise."""
    found = frozenset(range(1, layers))
    if fields.has(KINDS):
        found = read_layer_kinds(fields, layers, "sparse", "dense", KINDS)
    dense = fields.integer("first_k_dense_replace", layers - len(found), 0)
    if found != frozenset(range(dense, layers)) and fields.has("first_k_dense_replace"):
        expected = f"the dense layers of {KINDS}, or 1 where that is absent"
        raise fields.error("first_k_dense_replace", dense, expected)
    return found
