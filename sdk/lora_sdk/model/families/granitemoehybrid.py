"""Granite 4: Mamba2's layers, some with attention between them, each with an MLP or with experts
and one of every row beside them."""

from __future__ import annotations

from dataclasses import replace

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import read_experts, read_shared
from lora_sdk.model.families import granitemoeshared, llama
from lora_sdk.model.families.granite import with_factors
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.mamba import ATTENTION, MAMBA, MAMBA_NAMES, read_scan, scan_sources
from lora_sdk.model.recurrent import read_layer_kinds, without_attention
from lora_sdk.model.rope_fields import read_rope, scaled_positions
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(ffn=1024, vocabulary=32000, positions=2048, theta=None)
KINDS = ("layer_types", "layers_block_type")
TRAINED = ("normalization_function", "init_method", "mamba_chunk_size", "rope_theta",
           "rope_scaling", "rope_parameters")  # fmt: skip
"""Fields of training and, where nothing is rotated, of rotary positions."""


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    fields.only("mamba_proj_bias", (False,), "a scan with biases of its matmuls")
    fields.only("normalization_function", ("rmsnorm",), "another norm")
    config = read_decoder(fields, "granitemoehybrid", DEFAULTS)
    biased = fields.flag("attention_bias", False)
    config = replace(config, qkv_bias=biased, o_bias=biased)
    config = with_factors(_with_positions(config, fields), fields)
    layers = frozenset(range(config.layers))
    if fields.raw(KINDS)[1] is not None:
        layers = read_layer_kinds(fields, config.layers, MAMBA, ATTENTION, KINDS)
    values = fields.integer("mamba_expand", 2) * config.hidden
    recurrent = read_scan(fields, MAMBA_NAMES, layers, values)
    config = replace(config, recurrent=recurrent if layers else None)
    return _with_mlp(config, fields)


def _with_positions(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Rotary positions, or none at all."""
    kind = fields.raw("position_embedding_type", "nope")[1]
    if kind == "nope":
        fields.raw(TRAINED)
        return config
    if kind != "rope":
        raise fields.error("position_embedding_type", kind, "rope, nope or null")
    rope = read_rope(fields, config.positions, head_dim=config.head_dim)
    fields.raw(TRAINED)
    return replace(config, rope=rope, positions=scaled_positions(rope, config.positions))


def _with_mlp(config: ModelConfig, fields: Fields) -> ModelConfig:
    """Without experts the one of every row is the MLP."""
    counts = ("num_local_experts", "num_experts")
    if fields.integer(counts, 8, 0) == 0:
        fields.raw("num_experts_per_tok")
        return replace(config, ffn=fields.integer("shared_intermediate_size", 1024))
    experts = read_experts(
        fields, range(config.layers), True, counts, 8, 2, "intermediate_size", 11008
    )
    shared = read_shared(fields, experts, "shared_intermediate_size", 1024, gated=False)
    if not shared.shared:
        raise fields.error("shared_intermediate_size", 0, "an expert of every row")
    return replace(config, experts=shared)


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    if config.experts is not None:
        found = granitemoeshared.sources(config)
    else:
        found = llama.sources(config)
        for layer in range(config.layers):
            found.update(_mlp(config, layer))
    found = without_attention(config, found)
    for layer in sorted(config.recurrent.layers) if config.recurrent is not None else ():
        found.update(scan_sources(config, layer, f"layers.{layer}.mamba"))
    return found


def _mlp(config: ModelConfig, layer: int) -> dict[str, Source]:
    """gate, then up, of one tensor; down."""
    lead, d, ffn = f"layers.{layer}.shared_mlp", config.hidden, config.ffn
    both = f"{lead}.input_linear.weight"
    return {
        f"layer.{layer}.gate": Source(both, "oi", (2 * ffn, d), 0, ffn),
        f"layer.{layer}.up": Source(both, "oi", (2 * ffn, d), ffn, ffn),
        f"layer.{layer}.down": Source(f"{lead}.output_linear.weight", "oi", (d, ffn), 0, d),
    }
