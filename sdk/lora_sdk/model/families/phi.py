"""Phi-1, 1.5 and 2: attention and MLP side by side behind one norm, rotary positions on a part of
each head, biases everywhere."""

from __future__ import annotations

import re
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.gpt2 import ACTIVATIONS
from lora_sdk.model.fields import Fields
from lora_sdk.model.partial_rotary import separate_qkv
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("model.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


DEFAULTS = Defaults(
    layers=24, hidden=2048, ffn=8192, vocabulary=51200, positions=2048, eps=1e-5, rotary=0.5,
    activation="gelu_new", activations=ACTIVATIONS,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    return replace(
        read_decoder(fields, "phi", DEFAULTS, "layer_norm_eps"),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        residual="parallel",
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "final_layernorm", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn, queries = config.hidden, config.ffn, config.heads * config.head_dim
    return {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **separate_qkv(config, name, f"{tensor}.self_attn"),
        **biased(f"{name}.o", f"{tensor}.self_attn.dense", queries, d, config.o_bias),
        **biased(f"{name}.up", f"{tensor}.mlp.fc1", d, ffn, config.mlp_bias),
        **biased(f"{name}.down", f"{tensor}.mlp.fc2", ffn, d, config.mlp_bias),
    }
