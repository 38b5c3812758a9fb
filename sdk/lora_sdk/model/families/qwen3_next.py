"""Qwen3-Next: three of four layers with a gated delta rule, the fourth with gated attention;
Qwen2-MoE's experts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from lora_host import abi
from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import gated_sources, read_experts, read_shared
from lora_sdk.model.families.llama import PREFIXES, PROBE
from lora_sdk.model.families.qwen3_moe import sparse_layers
from lora_sdk.model.fields import Fields
from lora_sdk.model.recurrent import MAX_KERNEL, read_layer_kinds, without_attention
from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, linear, reordered, vector
from lora_sdk.model.spec import ModelConfig, RecurrentConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

IGNORED = re.compile(r"mtp\..+")  # heads that draft
DEFAULTS = Defaults(
    layers=48, hidden=2048, heads=16, kv_heads=2, head_dim=256, ffn=5632, vocabulary=151936,
    positions=32768, rotary=0.25,
)  # fmt: skip
DELTA, ATTENTION = "linear_attention", "full_attention"


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    config = read_hybrid(fields, "qwen3_next", DEFAULTS)
    experts = read_experts(
        fields, sparse_layers(fields, config.layers), fields.flag("norm_topk_prob", True),
        ("num_experts", "num_local_experts"), 512, 10, "moe_intermediate_size", 512,
    )  # fmt: skip
    shared = read_shared(fields, experts, "shared_expert_intermediate_size", 512, gated=True)
    return replace(config, experts=shared if experts.layers else None)


def read_hybrid(fields: Fields, architecture: str, defaults: Defaults) -> ModelConfig:
    """What Qwen3-Next and Qwen3.5 have in common. ModelError names a field that is wrong or not
    supported."""
    fields.only("attention_bias", (False,), "biases of attention beside its output gate")
    fields.only("attn_output_gate", (True,), "attention without its output gate")
    fields.only("mamba_ssm_dtype", ("float32",), "a state that is not FP32")
    config = read_decoder(fields, architecture, defaults)
    recurrent = _read_delta(fields, config.layers)
    return replace(
        config,
        head_norms="heads",
        one_plus=True,
        output_gate=True,
        recurrent=recurrent if recurrent.layers else None,
    )


def _read_delta(fields: Fields, layers: int) -> RecurrentConfig:
    interval = fields.integer("full_attention_interval", 4)
    delta = frozenset(layer for layer in range(layers) if (layer + 1) % interval)
    if fields.raw("layer_types")[1] is not None:
        delta = read_layer_kinds(fields, layers, DELTA, ATTENTION)
    most = abi.MAX_RECURRENT_COLUMNS
    key_heads = fields.integer("linear_num_key_heads", 16, high=most)
    value_heads = fields.integer("linear_num_value_heads", 32, high=most)
    if value_heads % key_heads:
        expected = f"a multiple of linear_num_key_heads {key_heads}"
        raise fields.error("linear_num_value_heads", value_heads, expected)
    return RecurrentConfig(
        "gated_delta",
        delta,
        fields.integer("linear_conv_kernel_dim", 4, high=MAX_KERNEL),
        fields.integer("linear_value_head_dim", 128, high=most) * value_heads,
        fields.integer("linear_key_head_dim", 128, high=most) * key_heads,
        key_heads,
        value_heads,
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    return hybrid_sources(config, _fused)


def hybrid_sources(
    config: ModelConfig, inputs: Callable[[ModelConfig, int], Iterator[tuple[str, Source]]]
) -> dict[str, Source]:
    """Those of all layers; `inputs(config, layer)` yields the matrices of a gated delta rule's
    input."""
    found = without_attention(config, gated_sources(config))
    for layer in range(config.layers):
        if config.recurs(layer):
            found.update(inputs(config, layer))
            found.update(_delta(config, layer))
        else:
            found.update(_attention(config, layer))
    return found


def _attention(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    """A head of q_proj has q, then its gate; columns of q and k in the order of their rotation."""
    name, lead, size = f"layer.{layer}", f"layers.{layer}.self_attn", config.head_dim
    width = config.rope.width if config.rope is not None else 0
    order = head_order(size, width, interleaved=False) if width else range(size)
    starts = range(0, 2 * size * config.heads, 2 * size)
    whole = linear(f"{lead}.q_proj.weight", config.hidden, 2 * size * config.heads)
    q = tuple(start + column for start in starts for column in order)
    gate = tuple(start + size + column for start in starts for column in range(size))
    yield f"{name}.q", replace(whole, count=len(q), order=q)
    yield f"{name}.q_gate", replace(whole, count=len(gate), order=gate)
    keys = linear(f"{lead}.k_proj.weight", config.hidden, size * config.kv_heads)
    yield f"{name}.k", reordered(keys, order)
    for part in "qk":
        gamma = vector(f"{lead}.{part}_norm.weight", size)
        yield f"{name}.{part}_norm.gamma", reordered(gamma, order)


def _delta(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    """All but its input."""
    name, lead, recurrent = f"layer.{layer}.mix", f"layers.{layer}.linear_attn", config.recurrent
    assert recurrent is not None
    keys, values, heads = recurrent.keys, recurrent.values, recurrent.value_heads
    shape = (2 * keys + values, 1, recurrent.kernel)
    for part, first, count in (("q", 0, keys), ("k", keys, keys), ("v", 2 * keys, values)):
        yield f"{name}.taps.{part}", Source(f"{lead}.conv1d.weight", "oi", shape, first, count)
    yield f"{name}.a_log", vector(f"{lead}.A_log", heads)
    yield f"{name}.dt_bias", vector(f"{lead}.dt_bias", heads)
    yield f"{name}.norm.gamma", vector(f"{lead}.norm.weight", values // heads)
    yield f"{name}.o", linear(f"{lead}.out_proj.weight", values, config.hidden)


def _fused(config: ModelConfig, layer: int) -> Iterator[tuple[str, Source]]:
    """Of each key head its q, its k, v and z of its value heads; and of each their b and a."""
    recurrent, lead = config.recurrent, f"layers.{layer}.linear_attn"
    assert recurrent is not None
    group = recurrent.value_heads // recurrent.key_heads
    keys = recurrent.keys // recurrent.key_heads
    values = recurrent.values // recurrent.key_heads
    for file, sizes in (
        ("in_proj_qkvz", {"q": keys, "k": keys, "v": values, "z": values}),
        ("in_proj_ba", {"b": group, "a": group}),
    ):
        each = sum(sizes.values())
        whole = linear(f"{lead}.{file}.weight", config.hidden, each * recurrent.key_heads)
        first = 0
        for part, size in sizes.items():
            order = tuple(
                head * each + first + column
                for head in range(recurrent.key_heads)
                for column in range(size)
            )
            yield f"layer.{layer}.mix.{part}", replace(whole, count=len(order), order=order)
            first += size
