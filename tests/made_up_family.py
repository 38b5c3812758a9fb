"""A family that the package does not know: parallel attention and MLP after one norm (or two),
interleaved RoPE on a part of each head, an lm_head with a bias. With `fused_qkv` one matrix holds
q, k and v of each head in sequence, and the RoPE pairs are halves."""

from __future__ import annotations

import re

from lora_sdk.model.config import register_family
from lora_sdk.model.fields import Fields
from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, biased, head, norm, reordered, table
from lora_sdk.model.spec import ModelConfig, RopeConfig

NAME = "made_up"
PREFIXES = ("net.", "")
PROBE = "wte.weight"
IGNORED = re.compile(r"h\.\d+\.attn\.mask")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration."""
    hidden, heads = fields.integer("width"), fields.integer("heads")
    fused = fields.flag("fused_qkv", False)
    two_norms = fields.flag("use_parallel_residual", True) and fields.flag("two_norms", False)
    return ModelConfig(
        architecture=NAME,
        layers=fields.integer("depth"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads if fused else fields.integer("kv_heads"),
        head_dim=hidden // heads,
        ffn=fields.integer("inner"),
        vocabulary=fields.integer("vocab_size"),
        positions=fields.integer("positions"),
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=1e-5,
        activation="gelu_tanh",
        rope=RopeConfig("default", 1e4, width=fields.integer("rotary_dim")),
        tied=fields.flag("tie_word_embeddings", False),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        head_bias=True,
        residual="parallel_two_norms" if two_norms else "parallel",
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> source in the files."""
    d = config.hidden
    found = {
        "embed.token": table("wte.weight", config.vocabulary, d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"h.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    found = norm(f"{name}.attn_norm", f"{tensor}.ln_1", d)
    if config.residual == "parallel_two_norms":
        found |= norm(f"{name}.mlp_norm", f"{tensor}.ln_2", d)
        found |= _fused(config, name, f"{tensor}.attn.qkv")
    else:
        found |= _separate(config, name, f"{tensor}.attn")
    for part, module, inputs, outputs in (
        ("o", "attn.out", d, d),
        ("up", "mlp.fc_in", d, ffn),
        ("down", "mlp.fc_out", ffn, d),
    ):
        found |= biased(f"{name}.{part}", f"{tensor}.{module}", inputs, outputs, True)
    return found


def _separate(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    assert config.rope is not None
    order = head_order(config.head_dim, config.rope.width, interleaved=True)
    found: dict[str, Source] = {}
    for part, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
        outputs = heads * config.head_dim
        own = biased(f"{name}.{part}", f"{tensor}.{part}", config.hidden, outputs, True)
        if part != "v":
            own = {key: reordered(source, order) for key, source in own.items()}
        found |= own
    return found


def _fused(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """[q, k, v] of the first head, then of the second: rows of one matrix."""
    assert config.rope is not None
    d, size = config.hidden, config.head_dim
    halves = head_order(size, config.rope.width, interleaved=False)
    found: dict[str, Source] = {}
    for part, columns in enumerate((halves, halves, tuple(range(size)))):
        order = tuple(
            (3 * head + part) * size + column for head in range(config.heads) for column in columns
        )
        key = f"{name}.{'qkv'[part]}"
        found[key] = Source(f"{tensor}.weight", "oi", (3 * d, d), 0, d, order)
        found[f"{key}.bias"] = Source(f"{tensor}.bias", "vector", (3 * d,), 0, d, order)
    return found


class _Family:
    """This module, as register_family takes it."""

    PREFIXES, PROBE, IGNORED = PREFIXES, PROBE, IGNORED
    normalize, sources = staticmethod(normalize), staticmethod(sources)


FAMILY = _Family()
register_family(NAME, FAMILY)
