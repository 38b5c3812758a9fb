"""MPT: ALiBi, LayerNorms without a beta, no biases; q, then k, then v in one matrix."""

from __future__ import annotations

import math
import re

from lora_sdk.model.fields import MAX_POSITIONS, Fields
from lora_sdk.model.source import Source, head, linear, norm, table
from lora_sdk.model.spec import ModelConfig

PREFIXES = ("transformer.", "")
PROBE = "wte.weight"
IGNORED = re.compile(r"(?!)")  # no buffers
EXPANSION = 4  # the library's MLP has no other width
# attn_config -> (values that mean nothing, what it would ask for)
_ATTENTION: dict[str, tuple[tuple[object, ...], str]] = {
    "alibi": ((True,), "MPT with learned positions"),
    "alibi_bias_max": ((8, 8.0), "another maximum of the slopes"),
    "attn_type": (("multihead_attention",), "another attention"),
    "attn_uses_sequence_id": ((False,), "attention within packed sequences"),
    "clip_qkv": ((None,), "clipped q, k and v"),
    "kv_n_heads": ((None,), "grouped heads in MPT"),
    "prefix_lm": ((False,), "a prefix that is seen from both sides"),
    "qk_ln": ((False,), "norms of q and k"),
    "qk_gn": ((False,), "norms of q and k"),
    "rope": ((False,), "rotary positions in MPT"),
    "sliding_window_size": ((-1,), "a sliding window in MPT"),
}
_REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "no_bias": ((True,), "biases in MPT"),
    "norm_type": (("low_precision_layernorm", "layernorm"), "another norm"),
    "logit_scale": ((None,), "scaled logits"),
    "expansion_ratio": ((EXPANSION,), "another width of the MLP"),
    "use_norm_in_ffn": ((False,), "a norm in the MLP"),
}
_TRAINING = (
    "emb_pdrop", "init_device", "init_config", "verbose", "embedding_fraction", "learned_pos_emb",
    "resid_pdrop", "fc_type", "ffn_config", "tokenizer_name",
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    hidden = fields.integer(("d_model", "hidden_size"), 2048)
    heads = fields.integer(("n_heads", "num_attention_heads"), 16)
    if hidden % heads:
        raise fields.error("d_model", hidden, f"a multiple of n_heads {heads}")
    for name, (allowed, what) in _REFUSED.items():
        fields.only(name, allowed, what)
    for name in _TRAINING:
        fields.raw(name)
    _check_attention(fields, hidden // heads)
    return ModelConfig(
        architecture="mpt",
        layers=fields.integer(("n_layers", "num_hidden_layers"), 24, high=4096),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=EXPANSION * hidden,
        vocabulary=fields.integer("vocab_size", 50368),
        positions=fields.integer("max_seq_len", 2048, high=MAX_POSITIONS),
        embed_dim=hidden,
        norm="layernorm",
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation="gelu_erf",
        tied=fields.flag("tie_word_embeddings", True),
        norm_bias=False,
        alibi="bloom",
    )


def _check_attention(fields: Fields, head_dim: int) -> None:
    """Refuse fields of `attn_config` that ask for more than ALiBi."""
    values = fields.raw("attn_config", {})[1]
    if not isinstance(values, dict):
        raise fields.error("attn_config", values, "an object")
    attention = Fields(values, f"{fields.where}: attn_config")
    for name, (allowed, what) in _ATTENTION.items():
        attention.only(name, allowed, what)
    usual = 1 / math.sqrt(head_dim)
    attention.only("softmax_scale", (usual,), "another attention scale")


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("wte.weight", config.vocabulary, d),
        **norm("final_norm", "norm_f", d, beta=False),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"blocks.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn = config.hidden, config.ffn
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.norm_1", d, beta=False),
        **norm(f"{name}.mlp_norm", f"{tensor}.norm_2", d, beta=False),
        f"{name}.o": linear(f"{tensor}.attn.out_proj.weight", d, d),
        f"{name}.up": linear(f"{tensor}.ffn.up_proj.weight", d, ffn),
        f"{name}.down": linear(f"{tensor}.ffn.down_proj.weight", ffn, d),
    }
    for index, part in enumerate("qkv"):
        weight = f"{tensor}.attn.Wqkv.weight"
        found[f"{name}.{part}"] = Source(weight, "oi", (3 * d, d), index * d, d)
    return found
