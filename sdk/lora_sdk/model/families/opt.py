"""OPT: configuration fields and tensor names, pre- and post-LayerNorm, projected embeddings."""

from __future__ import annotations

import re

from lora_sdk.model.families.gpt2 import ACTIVATIONS
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.source import Source, biased, head, linear, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("model.decoder.", "decoder.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"version")
POSITION_OFFSET = 2
NORM_EPS = 1e-5  # torch's LayerNorm default; the configuration has no field for it


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer("hidden_size", 768)
    heads = fields.integer("num_attention_heads", 12)
    if hidden % heads:
        raise fields.error("hidden_size", hidden, f"a multiple of num_attention_heads {heads}")
    positions = fields.integer("max_position_embeddings", 2048, high=MAX_POSITIONS)
    bias = fields.flag("enable_bias", True)
    norm_first = fields.flag("do_layer_norm_before", True)
    removed = fields.flag("_remove_final_layer_norm", False)
    return ModelConfig(
        architecture="opt",
        layers=fields.integer("num_hidden_layers", 12, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.integer("ffn_dim", 3072),
        vocabulary=fields.integer("vocab_size", 50272),
        positions=positions,
        embed_dim=fields.integer("word_embed_proj_dim", hidden),
        norm="layernorm",
        norm_eps=NORM_EPS,
        norm_first=norm_first,
        final_norm=norm_first and not removed,
        norm_affine=fields.flag("layer_norm_elementwise_affine", True),
        activation=fields.choice("activation_function", "relu", ACTIVATIONS),
        position_rows=positions + POSITION_OFFSET,
        position_offset=POSITION_OFFSET,
        tied=fields.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; lm_head only if it is not tied."""
    d, e = config.hidden, config.embed_dim
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, e),
        "embed.position": table("embed_positions.weight", config.position_rows, d),
    }
    if e != d:
        found["project_in"] = linear("project_in.weight", e, d)
        found["project_out"] = linear("project_out.weight", d, e)
    if config.final_norm and config.norm_affine:
        found.update(norm("final_norm", "final_layer_norm", d))
    for layer in range(config.layers):
        found.update(_layer(config, f"layer.{layer}", f"layers.{layer}"))
    return found | head("lm_head", e, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    found: dict[str, Source] = {}
    if config.norm_affine:
        found.update(norm(f"{name}.attn_norm", f"{tensor}.self_attn_layer_norm", d))
        found.update(norm(f"{name}.mlp_norm", f"{tensor}.final_layer_norm", d))
    for letter, part in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
        found.update(
            biased(f"{name}.{letter}", f"{tensor}.self_attn.{part}", d, d, config.qkv_bias)
        )
    found.update(biased(f"{name}.up", f"{tensor}.fc1", d, ffn, config.mlp_bias))
    found.update(biased(f"{name}.down", f"{tensor}.fc2", ffn, d, config.mlp_bias))
    return found
