"""Which products of a model are quantized and how: block sizes, weight types, widths of what their
inputs travel as."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.model.quantization import (
    FP16,
    GROUPS,
    KvKind,
    MatrixFormat,
    Quantization,
    format_of,
)

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

INT4_BYTES = {
    32: abi.BLOCK_BYTES_INT4_32,
    64: abi.BLOCK_BYTES_INT4_64,
    128: abi.BLOCK_BYTES_INT4_128,
}
TYPES = {
    "fp16": abi.WEIGHT_FP16,
    "int8": abi.WEIGHT_INT8,
    "w4a8": abi.WEIGHT_W4A8,
    "w4a16": abi.WEIGHT_W4A16,
}
KV_TYPES = {"fp16": abi.KV_FP16, "int8": abi.KV_INT8, "int8-heads": abi.KV_INT8_HEADS}


def block_bytes(chosen: MatrixFormat) -> int:
    """Bytes of one weight block of 128 x 32, scales and zero points of 4-bit ones included."""
    if chosen.group is not None:
        return INT4_BYTES[chosen.group]
    return abi.BLOCK_BYTES_INT8 if chosen.kind == "int8" else abi.BLOCK_BYTES_FP16


def weight_type(chosen: MatrixFormat) -> int:
    """A matrix command's weight_type."""
    group = chosen.group.bit_length() - 1 if chosen.group else 0
    return TYPES[chosen.kind] | group << abi.WEIGHT_GROUP_SHIFT


def weight_bytes(chosen: MatrixFormat, k: int, n: int) -> int:
    """Bytes of a matrix [k, n] itself, without padding: weights, of 4-bit ones scales and zero
    points too (half a byte each)."""
    if chosen.group is None:
        return k * n * (1 if chosen.kind == "int8" else 2)
    return (k * n + k // chosen.group * n * 5) // 2


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
        chosen = product_format(config, product)
        known.update((name, (k,)) for name in tensors_of(config, product))
        if chosen.integer and k > abi.MAX_INT8_K:
            raise ModelError(f"{product}: K is {k}; INT32 sums are exact up to {abi.MAX_INT8_K}")
    found.check(known)
    if found.kv != "fp16" and config.head_dim % 2:
        raise ModelError(f"head_dim is {config.head_dim}; KV caches of INT8 need an even one")


def quantized_as(config: ModelConfig, precision: str) -> ModelConfig:
    """The model with all matrices of its layers, lm_head and the KV cache as an overlay of this
    precision is made for: "w8a8" with INT8 attention, or "w4a8" in the largest group that divides
    K, K and V in INT8 by head."""
    formats: dict[str, MatrixFormat] = {"lm_head": MatrixFormat("int8")}
    for _, product, k in products(config):
        if not product.startswith("layer."):
            continue
        fitting = [size for size in GROUPS if k % size == 0]
        chosen = MatrixFormat("int8")
        if precision == "w4a8" and fitting:
            chosen = MatrixFormat("w4a8", fitting[-1])
        formats.update(dict.fromkeys(tensors_of(config, product), chosen))
    kv: KvKind = "int8" if precision == "w8a8" else "int8-heads"
    return replace(config, quantization=Quantization(precision, formats, kv))
