"""LFM2: layers with short convolutions, some with attention between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.recurrent import MAX_KERNEL, read_layer_kinds
from lora_sdk.model.source import Source, linear, norm, table
from lora_sdk.model.spec import ModelConfig, RecurrentConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=32, hidden=2560, heads=32, kv_heads=8, ffn=12288, vocabulary=65536, positions=128000,
    eps=1e-5, theta=1e6, tied=True,
)  # fmt: skip
CONV, ATTENTION = "conv", "full_attention"
COPIES = (
    "block_dim", "block_norm_eps", "conv_dim", "conv_dim_out", "num_heads", "theta",
    "block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init",
)  # fmt: skip
"""Fields that published folders have twice, and those of training."""


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    fields.only("block_use_swiglu", (True,), "an MLP without SwiGLU")
    fields.only("use_pos_enc", (True,), "attention without positions")
    fields.raw(COPIES)
    config = read(fields, "lfm2", DEFAULTS)
    return replace(config, ffn=_inner(fields, config.ffn))


def read(fields: Fields, architecture: str, defaults: Defaults) -> ModelConfig:
    """The configuration of LFM2's fields, its MLP's inner size as the field has it."""
    fields.only("conv_bias", (False,), "a convolution with biases")
    config = read_decoder(fields, architecture, defaults, "norm_eps")
    if config.heads * config.head_dim != config.hidden:
        expected = f"{config.hidden} columns of {config.heads} heads, as of the convolutions"
        raise fields.error("head_dim", config.head_dim, expected)
    layers = _convolutions(fields, config.layers)
    kernel = fields.integer("conv_L_cache", 3, high=MAX_KERNEL)
    recurrent = RecurrentConfig("short_conv", layers, kernel, config.hidden)
    return replace(
        config,
        norm="rmsnorm",
        head_norms="heads",
        tied=fields.flag("tie_embedding", config.tied),
        recurrent=recurrent if layers else None,
    )


def _convolutions(fields: Fields, layers: int) -> frozenset[int]:
    """Layers of layer_types that are convolutions; without that list those that full_attn_idxs
    does not name."""
    attention = fields.raw("full_attn_idxs")[1]
    known = isinstance(attention, list) and all(type(one) is int for one in attention)
    if attention is not None and not known:
        raise fields.error("full_attn_idxs", attention, "a list of layers")
    if fields.raw("layer_types")[1] is None:
        return frozenset(range(layers)) - frozenset(
            range(layers) if attention is None else attention
        )
    return read_layer_kinds(fields, layers, CONV, ATTENTION)


def _inner(fields: Fields, ffn: int) -> int:
    """The MLP's inner size: two thirds of the field, in whole steps, unless it says otherwise."""
    ffn = fields.integer("block_ff_dim", ffn)
    step = fields.integer("block_multiple_of", 256)
    factor = fields.number("block_ffn_dim_multiplier", 1.0)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return ffn
    return -(-int(factor * int(2 * ffn / 3)) // step) * step


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "embedding_norm", d, beta=False),
    }
    for layer in range(config.layers):
        found.update(_layer(config, layer))
    if not config.tied:
        found["lm_head"] = replace(linear("lm_head.weight", d, config.vocabulary), prefixed=False)
    return found


def _layer(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    name, lead, d, ffn = f"layer.{layer}", f"layers.{layer}", config.hidden, config.ffn
    yield from norm(f"{name}.attn_norm", f"{lead}.operator_norm", d, beta=False).items()
    yield from norm(f"{name}.mlp_norm", f"{lead}.ffn_norm", d, beta=False).items()
    yield from (_mix if config.recurs(layer) else _attention)(config, layer)
    if config.experts is not None and layer in config.experts.layers:
        return
    for part, file, inputs, outputs in (
        ("gate", "w1", d, ffn), ("up", "w3", d, ffn), ("down", "w2", ffn, d),
    ):  # fmt: skip
        yield f"{name}.{part}", linear(f"{lead}.feed_forward.{file}.weight", inputs, outputs)


def _mix(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    """in_proj has B, then C, then x."""
    name, lead, d = f"layer.{layer}.mix", f"layers.{layer}.conv", config.hidden
    assert config.recurrent is not None
    for number, part in enumerate("bcx"):
        yield f"{name}.{part}", Source(f"{lead}.in_proj.weight", "oi", (3 * d, d), number * d, d)
    yield (
        f"{name}.taps.v",
        Source(f"{lead}.conv.weight", "oi", (d, 1, config.recurrent.kernel), 0, d),
    )
    yield f"{name}.o", linear(f"{lead}.out_proj.weight", d, d)


def _attention(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    name, lead, d = f"layer.{layer}", f"layers.{layer}.self_attn", config.hidden
    keys = config.kv_heads * config.head_dim
    for part in "qk":
        file = f"{lead}.{part}_layernorm"
        yield from norm(f"{name}.{part}_norm", file, config.head_dim, beta=False).items()
    for part, columns in (("q", d), ("k", keys), ("v", keys)):
        yield f"{name}.{part}", linear(f"{lead}.{part}_proj.weight", d, columns)
    yield f"{name}.o", linear(f"{lead}.out_proj.weight", d, d)
