"""StarCoder2: LayerNorms, rotary positions, grouped heads, an MLP without a gate, biases."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.families.gpt2 import ACTIVATIONS
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, biased, head, norm, table
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_window

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]


DEFAULTS = Defaults(
    layers=30, hidden=3072, heads=24, kv_heads=2, ffn=12288, vocabulary=49152, positions=4096,
    eps=1e-5, tied=True, activation="gelu_pytorch_tanh", activations=ACTIVATIONS,
)  # fmt: skip


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_decoder(fields, "starcoder2", DEFAULTS, "norm_epsilon")
    bias = fields.flag("use_bias", True)
    return replace(
        config,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=bias,
        windows=read_window(fields, config),
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> location in the files; lm_head only where it is not tied."""
    d = config.hidden
    found = {
        "embed.token": table("embed_tokens.weight", config.vocabulary, d),
        **norm("final_norm", "norm", d),
    }
    for layer in range(config.layers):
        found |= _layer(config, f"layer.{layer}", f"layers.{layer}")
    return found | head("lm_head", d, config.vocabulary, config.tied, config.head_bias)


def _layer(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    d, ffn, bias = config.hidden, config.ffn, config.qkv_bias
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    found = {
        **norm(f"{name}.attn_norm", f"{tensor}.input_layernorm", d),
        **norm(f"{name}.mlp_norm", f"{tensor}.post_attention_layernorm", d),
    }
    for part, module, inputs, outputs in (
        ("q", "self_attn.q_proj", d, queries),
        ("k", "self_attn.k_proj", d, keys),
        ("v", "self_attn.v_proj", d, keys),
        ("o", "self_attn.o_proj", queries, d),
        ("up", "mlp.c_fc", d, ffn),
        ("down", "mlp.c_proj", ffn, d),
    ):
        found |= biased(f"{name}.{part}", f"{tensor}.{module}", inputs, outputs, bias)
    return found
