"""BLOOM: ALiBi, a norm of the token embeddings, q, k and v of each head in one matrix."""

from __future__ import annotations

import re

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.fused_heads import heads_side_by_side
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("transformer.", "")
PROBE = "word_embeddings.weight"
IGNORED = re.compile(r"(h\.\d+\.self_attention\.)?(masked_bias|bias)")
POSITIONS = 2048  # of the released models; ALiBi itself has no limit


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer(("hidden_size", "n_embed"), 64)
    heads = fields.integer(("n_head", "num_attention_heads"), 8)
    if hidden % heads:
        raise fields.error("hidden_size", hidden, f"a multiple of n_head {heads}")
    fields.only(
        "apply_residual_connection_post_layernorm", (False,), "residuals taken behind the norms"
    )
    for name in ("slow_but_exact", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv"):
        fields.raw(name)  # ways to compute the same, or to train
    for name in ("attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion"):
        fields.raw(name)
    return ModelConfig(
        architecture="bloom",
        layers=fields.integer(("n_layer", "num_hidden_layers"), 2, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=fields.integer("n_inner", 4 * hidden),
        vocabulary=fields.integer("vocab_size", 250880),
        positions=fields.integer(
            ("seq_length", "max_position_embeddings", "n_positions"), POSITIONS, high=MAX_POSITIONS
        ),
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation="gelu_tanh",
        tied=fields.flag("tie_word_embeddings", True),
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        embed_norm=True,
        alibi="bloom",
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("word_embeddings.weight", config.vocabulary, d),
        **norm("embed_norm", "word_embeddings_layernorm", d),
        **norm("final_norm", "ln_f", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"h.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    return {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d),
        **heads_side_by_side(config, name, f"{tensor}.self_attention.query_key_value"),
        **biased(f"{name}.o", f"{tensor}.self_attention.dense", d, d, config.o_bias),
        **biased(f"{name}.up", f"{tensor}.mlp.dense_h_to_4h", d, ffn, config.mlp_bias),
        **biased(f"{name}.down", f"{tensor}.mlp.dense_4h_to_h", ffn, d, config.mlp_bias),
    }
