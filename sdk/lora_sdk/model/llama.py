"""LLaMA and Mistral: configuration fields, RoPE parameters and tensor names."""

from __future__ import annotations

import re
from typing import Any

from lora_host.errors import ModelError
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.refused import refuse_window
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig, RopeConfig

PREFIXES = ("model.", "")
PROBE = "embed_tokens.weight"
IGNORED = re.compile(r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
DEFAULT_THETA = 10000.0
ROPE_KINDS = {"default": "default", "linear": "linear", "llama3": "llama3"}
MISTRAL_WINDOW = 4096  # what Mistral's configuration means where it says nothing


def normalise(fields: Fields) -> ModelConfig:
    """The normalised configuration; ModelError names a field that is wrong or not supported."""
    mistral = fields.raw("model_type")[1] == "mistral"
    hidden = fields.integer("hidden_size", 4096)
    heads = fields.integer("num_attention_heads", 32)
    kv_heads = fields.integer("num_key_value_heads", 8 if mistral else heads)
    if heads % kv_heads:
        raise fields.error(
            "num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}"
        )
    head_dim = _head_dim(fields, hidden, heads)
    positions = fields.integer(
        "max_position_embeddings", 4096 * 32 if mistral else 2048, high=MAX_POSITIONS
    )
    # A null in the file switches the window off; only a missing field means the default.
    silent = mistral and "sliding_window" not in fields.values
    refuse_window(fields, positions, MISTRAL_WINDOW if silent else None)
    attention_bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture="llama",
        layers=fields.integer("num_hidden_layers", 32, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=fields.integer("intermediate_size", 14336 if mistral else 11008),
        vocabulary=fields.integer("vocab_size", 32000),
        positions=positions,
        embed_dim=hidden,
        norm="rmsnorm",
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        norm_first=True,
        final_norm=True,
        norm_affine=True,
        activation=fields.choice("hidden_act", "silu", {"silu": "silu", "swish": "silu"}),
        gated=True,
        rope=_rope(fields, positions),
        position_rows=0,
        position_offset=0,
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if not fields.has("head_dim") and hidden % heads:
        raise fields.error("hidden_size", hidden, f"a multiple of num_attention_heads {heads}")
    head_dim = fields.integer("head_dim", max(1, hidden // heads), high=4096)
    if head_dim % 2:
        raise fields.error("head_dim", head_dim, "an even number, for rotary positions")
    return head_dim


def _rope(fields: Fields, positions: int) -> RopeConfig:
    """RoPE from `rope_parameters`, or from `rope_scaling` and the top-level `rope_theta`."""
    rope = Fields(_rope_object(fields), f"{fields.where}: rope parameters")
    theta = rope.number("rope_theta", fields.number("rope_theta", DEFAULT_THETA, 1), 1)
    kind = rope.choice(("rope_type", "type"), "default", ROPE_KINDS)
    rope.only("partial_rotary_factor", (1, 1.0), "rotating a part of a head")
    original = fields.raw("original_max_position_embeddings")[1]
    if original is None:
        original = rope.raw("original_max_position_embeddings", positions)[1]
    values: dict[str, Any] = {}
    if kind != "default":
        values["factor"] = rope.number("factor", low=1)
    if kind == "llama3":
        values["low_freq_factor"] = rope.number("low_freq_factor")
        values["high_freq_factor"] = rope.number("high_freq_factor")
        checked = Fields({"original_max_position_embeddings": original}, rope.where)
        values["original_positions"] = checked.integer("original_max_position_embeddings")
        if values["high_freq_factor"] <= values["low_freq_factor"]:
            raise rope.error(
                "high_freq_factor",
                values["high_freq_factor"],
                f"more than low_freq_factor {values['low_freq_factor']}",
            )
    _refuse_rest(rope)
    return RopeConfig(kind=kind, theta=theta, **values)


def _rope_object(fields: Fields) -> dict[str, Any]:
    new, old = fields.raw("rope_parameters")[1], fields.raw("rope_scaling")[1]
    if new and old and new != old:
        raise ModelError(f"{fields.where}: rope_parameters and rope_scaling differ, expected one")
    chosen = old or new or {}
    if not isinstance(chosen, dict):
        raise fields.error("rope_scaling", chosen, "an object")
    return chosen


def _refuse_rest(rope: Fields) -> None:
    """A parameter that the type does not read belongs to another type: say so, do not guess."""
    for name in ("factor", "low_freq_factor", "high_freq_factor"):
        rope.raw(name)
    for name, value in rope.values.items():
        if value is not None and not rope.was_read(name):
            raise rope.error(name, value, "none: this RoPE type does not read it")


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> place in the files, lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d, beta=False),
    }
    for layer in range(config.layers):
        found.update(_layer(config, f"layer.{layer}", f"layers.{layer}"))
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d, beta=False),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d, beta=False),
    }
    for part, inputs, outputs, bias in (
        ("q", d, queries, config.qkv_bias),
        ("k", d, keys, config.qkv_bias),
        ("v", d, keys, config.qkv_bias),
        ("o", queries, d, config.o_bias),
    ):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.self_attn.{part}_proj", inputs, outputs, bias)
        )
    for part, inputs, outputs in (("gate", d, ffn), ("up", d, ffn), ("down", ffn, d)):
        found.update(
            biased(f"{name}.{part}", f"{tensor}.mlp.{part}_proj", inputs, outputs, config.mlp_bias)
        )
    return found
