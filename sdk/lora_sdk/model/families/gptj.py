"""GPT-J: interleaved rotary positions on a part of each head, attention and MLP side by side behind
one norm, a bias of lm_head."""

from __future__ import annotations

import re

from lora_sdk.model.families.gpt2 import ACTIVATIONS
from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, biased, head, linear, norm, reordered, table
from lora_sdk.model.spec import ModelConfig, RopeConfig

PREFIXES = ("transformer.", "")
PROBE = "wte.weight"
IGNORED = re.compile(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)")
THETA = 10000.0  # the configuration has no field for it


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer(("n_embd", "hidden_size"), 4096)
    heads = fields.integer(("n_head", "num_attention_heads"), 16)
    if hidden % heads:
        raise fields.error("n_embd", hidden, f"a multiple of n_head {heads}")
    fields.only("rotary", (True,), "GPT-J without rotary positions")
    fields.only("scale_attn_weights", (True,), "GPT-J with unscaled scores")
    return ModelConfig(
        architecture="gptj",
        layers=fields.integer(("n_layer", "num_hidden_layers"), 28, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.integer("n_inner", 4 * hidden),
        vocabulary=fields.integer("vocab_size", 50400),
        positions=fields.integer(
            ("n_positions", "max_position_embeddings"), 2048, high=MAX_POSITIONS
        ),
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=fields.choice("activation_function", "gelu_new", ACTIVATIONS),
        rope=RopeConfig("default", THETA, width=_width(fields, hidden // heads)),
        tied=fields.flag("tie_word_embeddings", False),
        mlp_bias=True,
        head_bias=True,
        residual="parallel",
    )


def _width(fields: Fields, head_dim: int) -> int:
    """rotary_dim; a null would rotate by the angles of a head as wide as the model."""
    if fields.values.get("rotary_dim", 64) is None:
        raise fields.error("rotary_dim", None, f"an even number up to {head_dim}")
    width = fields.integer("rotary_dim", 64)
    if width % 2 or width > head_dim or head_dim % 2:
        raise fields.error("rotary_dim", width, f"an even number up to an even head, {head_dim}")
    return width


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("wte.weight", config.vocabulary, d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"h.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    assert config.rope is not None
    d, ffn = config.hidden, config.ffn
    neighbours = head_order(config.head_dim, config.rope.width, interleaved=True)
    found = norm(f"{name}.attn_norm", f"{tensor}.ln_1", d)
    for part in "qk":
        source = linear(f"{tensor}.attn.{part}_proj.weight", d, d)
        found[f"{name}.{part}"] = reordered(source, neighbours)
    found[f"{name}.v"] = linear(f"{tensor}.attn.v_proj.weight", d, d)
    found[f"{name}.o"] = linear(f"{tensor}.attn.out_proj.weight", d, d)
    found |= biased(f"{name}.up", f"{tensor}.mlp.fc_in", d, ffn, config.mlp_bias)
    return found | biased(f"{name}.down", f"{tensor}.mlp.fc_out", ffn, d, config.mlp_bias)
