"""GPT-2: configuration fields and tensor names. Conv1D weights are [input, output], QKV fused."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.source import Source, head, norm, table, vector
from lora_sdk.model.spec import Activation, ModelConfig

ACTIVATIONS: Mapping[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu_erf",
    "relu": "relu",
}
PREFIXES = ("transformer.", "")
PROBE = "wte.weight"
IGNORED = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer(("n_embd", "hidden_size"), 768)
    heads = fields.integer(("n_head", "num_attention_heads"), 12)
    if hidden % heads:
        raise fields.error("n_embd", hidden, f"a multiple of n_head {heads}")
    positions = fields.integer(("n_positions", "max_position_embeddings"), 1024, high=MAX_POSITIONS)
    fields.only("reorder_and_upcast_attn", (False,), "reordered attention")
    return ModelConfig(
        architecture="gpt2",
        layers=fields.integer(("n_layer", "num_hidden_layers"), 12, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.integer("n_inner", 4 * hidden),
        vocabulary=fields.integer("vocab_size", 50257),
        positions=positions,
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=fields.choice("activation_function", "gelu_new", ACTIVATIONS),
        position_rows=positions,
        tied=fields.flag("tie_word_embeddings", True),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        scale_scores=fields.flag("scale_attn_weights", True),
        scale_by_layer=fields.flag("scale_attn_by_inverse_layer_idx", False),
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files; lm_head only if it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("wte.weight", config.vocabulary, d),
        "embed.position": table("wpe.weight", config.position_rows, d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found.update(_layer(f"layer.{layer}", f"h.{layer}", d, config.ffn))
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(name: str, tensor: str, d: int, ffn: int) -> dict[str, Source]:
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.ln_1", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.ln_2", d),
    }
    for part, letter in enumerate("qkv"):
        weight, bias = f"{tensor}.attn.c_attn.weight", f"{tensor}.attn.c_attn.bias"
        found[f"{name}.{letter}"] = Source(weight, "io", (d, 3 * d), part * d, d)
        found[f"{name}.{letter}.bias"] = Source(bias, "vector", (3 * d,), part * d, d)
    for part_name, part_tensor, inputs, outputs in (
        ("o", "attn.c_proj", d, d),
        ("up", "mlp.c_fc", d, ffn),
        ("down", "mlp.c_proj", ffn, d),
    ):
        weight = f"{tensor}.{part_tensor}.weight"
        found[f"{name}.{part_name}"] = Source(weight, "io", (inputs, outputs), 0, outputs)
        found[f"{name}.{part_name}.bias"] = vector(f"{tensor}.{part_tensor}.bias", outputs)
    return found
