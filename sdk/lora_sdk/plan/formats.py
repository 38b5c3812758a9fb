"""Which products of a model are quantized, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host.errors import ModelError
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import (
    FP16,
    MatrixFormat,
    Quantization,
    format_of,
    kv_of,
)
from lora_sdk.model.weight_formats import INT8, of_precision

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def tensors_of(config: ModelConfig, product: str) -> tuple[str, ...]:
    """Checkpoint names of the matrices whose columns are those of a product of the boards."""
    prefix, _, last = product.rpartition(".")
    up = ("gate", "up") if config.gated else ("up",)
    names = {"qkv": ("q", "k", "v"), "up": up}.get(last, (last,))
    return tuple(f"{prefix}.{name}" if prefix else name for name in names)


def product_format(config: ModelConfig, product: str) -> MatrixFormat:
    """The format of `layer.I.{qkv,o,up,down}`, `project_in`, `project_out` or `lm_head`."""
    if config.quantization is None:
        return FP16
    return format_of(config, tensors_of(config, product))


def act_order(config: ModelConfig, product: str) -> bool:
    """Whether the product's inputs have to be permuted."""
    found = config.quantization
    return found is not None and tensors_of(config, product)[0] in found.act_order


def products(config: ModelConfig) -> Iterator[tuple[str, str, int]]:
    """(on-chip buffer of its input, product, K) of every product of a step, in order."""
    projected = config.embed_dim != config.hidden
    if projected:
        yield "embed", "project_in", config.embed_dim
    for layer in range(config.layers):
        prefix = f"layer.{layer}"
        yield "input", f"{prefix}.qkv", config.hidden
        yield "attention", f"{prefix}.o", config.heads * config.head_dim
        yield "input", f"{prefix}.up", config.hidden
        yield "ffn", f"{prefix}.down", config.ffn
    if projected:
        yield "head", "project_out", config.hidden
    yield "embed" if projected else "head", "lm_head", config.embed_dim


def check_products(config: ModelConfig) -> None:
    """ModelError names a matrix whose format its product cannot have: K no multiple of the group,
    parts of one product that differ, a sum that INT32 does not hold."""
    found = config.quantization
    if found is None:
        return
    known: dict[str, tuple[int, ...]] = {}
    for _, product, k in products(config):
        product_format(config, product)
        known.update((name, (k,)) for name in tensors_of(config, product))
    found.check(known)
    if kv_of(config).quantized and config.head_dim % 2:
        raise ModelError(f"head_dim is {config.head_dim}; KV caches of INT8 need an even one")


def quantized_as(config: ModelConfig, precision: str) -> ModelConfig:
    """The model with all matrices of its layers, lm_head and the KV cache as an overlay of this
    precision is made for: "w8a8" with INT8 attention, or "w4a8" in the largest group that divides
    K, K and V in INT8 by head."""
    weights = of_precision(precision)
    formats: dict[str, MatrixFormat] = {"lm_head": MatrixFormat(INT8.name)}
    for _, product, k in products(config):
        if not product.startswith("layer."):
            continue
        group = weights.fitting_group(k)
        fits = group in weights.groups
        chosen = MatrixFormat(weights.name, group) if fits else MatrixFormat(INT8.name)
        formats.update(dict.fromkeys(tensors_of(config, product), chosen))
    kv: KvKind = "int8" if weights is INT8 else "int8-heads"
    return replace(config, quantization=Quantization(precision, formats, kv))
