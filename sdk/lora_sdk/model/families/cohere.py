"""Cohere (Command R): LLaMA's tensor names, one LayerNorm without beta before attention and MLP,
which run side by side; rotary pairs that lie side by side; factor of logits."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families import llama
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, reordered
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=40, hidden=8192, heads=64, ffn=22528, vocabulary=256000, positions=8192, eps=1e-5,
    theta=500000.0, tied=True,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    fields.only("use_qk_norm", (False,), "LayerNorms of q and k")
    attention = fields.flag("attention_bias", False)
    return replace(
        read_decoder(fields, "cohere", DEFAULTS, eps_name="layer_norm_eps"),
        norm_bias=False,
        residual="parallel",
        qkv_bias=attention,
        o_bias=attention,
        logit_scale=fields.number("logit_scale", 0.0625),
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; lm_head only if it is not tied."""
    order = head_order(config.head_dim, config.head_dim, interleaved=True)
    found = llama.sources(config)
    for layer in range(config.layers):
        del found[f"layer.{layer}.mlp_norm.gamma"]
        for part in ("q", "k"):
            for name in (f"layer.{layer}.{part}", f"layer.{layer}.{part}.bias"):
                if name in found:
                    found[name] = reordered(found[name], order)
    return found
