"""LLaMA and Mistral: configuration fields and tensor names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.fields import Fields
from lora_sdk.model.refused import refuse_window
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import BranchNorms, ModelConfig
from lora_sdk.model.windows import read_window

PREFIXES = ("model.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
MISTRAL_WINDOW = 4096  # the default of Mistral's configuration


LLAMA = Defaults(ffn=11008, vocabulary=32000, positions=2048)
MISTRAL = Defaults(kv_heads=8, ffn=14336, vocabulary=32000, positions=4096 * 32)


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    mistral = fields.raw("model_type")[1] == "mistral"
    config = read_decoder(fields, "llama", MISTRAL if mistral else LLAMA)
    if mistral:
        config = replace(config, windows=read_window(fields, config, MISTRAL_WINDOW))
    else:
        refuse_window(fields, config.positions)
    return with_biases(config, fields)


def with_biases(config: ModelConfig, fields: Fields) -> ModelConfig:
    """`config` with the biases that LLaMA's fields name."""
    attention = fields.flag("attention_bias", False)
    mlp = fields.flag("mlp_bias", False)
    return replace(config, qkv_bias=attention, o_bias=attention, mlp_bias=mlp)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; lm_head only if it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d, beta=False),
    }
    for layer in range(config.layers):
        found.update(_layer(config, layer))
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


# A layer's norms by `branch_norms`: canonical name -> the file's.
NORMS: Mapping[BranchNorms, Mapping[str, str]] = {
    "none": {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    "alone": {
        "attn_post_norm": "post_attention_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    },
    "both": {
        "attn_norm": "input_layernorm",
        "attn_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    },
}


def _layer(config: ModelConfig, layer: int) -> dict[str, Source]:
    """Norms, attention and, unless the layer has experts, the MLP."""
    name, tensor = f"layer.{layer}", f"layers.{layer}"
    d, ffn = config.hidden, config.ffn
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found: dict[str, Source] = {}
    for own, file in NORMS[config.branch_norms].items():
        found |= norm(f"{name}.{own}", f"{tensor}.{file}", d, beta=False)
    for part, columns in (("q", queries), ("k", keys)) if config.head_norms != "none" else ():
        count = columns if config.head_norms == "row" else config.head_dim
        own = f"{name}.{part}_norm"
        found |= norm(own, f"{tensor}.self_attn.{part}_norm", count, beta=False)
    for part, inputs, outputs, bias in (
        ("q", d, queries, config.qkv_bias),
        ("k", d, keys, config.qkv_bias),
        ("v", d, keys, config.qkv_bias),
        ("o", queries, d, config.o_bias),
    ):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.self_attn.{part}_proj", inputs, outputs, bias)
        )
    if config.experts is not None and layer in config.experts.layers:
        return found
    for part, inputs, outputs in (("gate", d, ffn), ("up", d, ffn), ("down", ffn, d)):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.mlp.{part}_proj", inputs, outputs, config.mlp_bias)
        )
    return found
