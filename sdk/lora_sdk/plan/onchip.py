"""Where activations lie in the on-chip buffer, and how many rows of a step fit in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.model.quantization import kv_of
from lora_sdk.plan.formats import act_order, product_format, products
from lora_sdk.plan.partition import Share
from lora_sdk.plan.tensors import FP16_BYTES, padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


@dataclass(frozen=True)
class OnchipBuffer:
    """Row i stands at offset + i*stride bytes of abi.BANK_ONCHIP."""

    offset: int
    stride: int


def row_strides(config: ModelConfig, share: Share, adapter_columns: int = 0) -> dict[str, int]:
    """Bytes of one row of each buffer.

    Only what a gather fills is as wide as the model (`input`, `attention`, `ffn`, `head`, `embed`,
    and `input8` .. `embed8`, the same in INT8 where a product reads it so); the rest is the board's
    own columns: the residual, results of products, norm sums (III.A). `adapter_columns`: values of
    a row of adapters' h, 0 without adapters."""
    hidden, local = config.hidden, len(share.hidden)
    heads = len(share.q_heads) + 2 * len(share.kv_heads)
    columns = {
        "residual": local,
        "input": hidden,
        "qkv": heads * config.head_dim,
        "attention": config.heads * config.head_dim,
        "product": local,
        "up": len(share.ffn) * (2 if config.gated else 1),
        "ffn": config.ffn,
        "packed": local,
        "head": hidden,
    }
    if config.embed_dim != hidden:
        columns["embed"] = config.embed_dim
    strides = {name: padded(count * FP16_BYTES) for name, count in columns.items()}
    strides["sums"] = padded(abi.SEGMENTS * 8)
    if adapter_columns:
        strides["adapter"] = padded(adapter_columns * FP16_BYTES)
    return strides | _quantized(config, columns) | _quantized_kv(config, share)


def eight(buffer: str) -> str:
    """Name of the buffer that holds `buffer`'s rows in INT8."""
    return f"{buffer}8"


def _quantized(config: ModelConfig, columns: dict[str, int]) -> dict[str, int]:
    """Strides of INT8 inputs and of inputs in another order."""
    found: dict[str, int] = {}
    if config.quantization is None:
        return found
    for source, product, k in products(config):
        integer = product_format(config, product).integer
        if integer:
            found[eight(source)] = padded(columns[source])
        if act_order(config, product):
            size = padded(k * (1 if integer else FP16_BYTES))
            found["permuted"] = max(found.get("permuted", 0), size)
    return found


def _quantized_kv(config: ModelConfig, share: Share) -> dict[str, int]:
    """Strides of q, k and v in INT8, or of k and v with their scales."""
    kv_heads = 2 * len(share.kv_heads)
    kind = kv_of(config)
    if kind.static:
        return {"qkv8": padded((len(share.q_heads) + kv_heads) * config.head_dim)}
    if kind.by_head:
        return {
            "kv8": padded(kv_heads * config.head_dim),
            "kv_scales": padded(kv_heads * FP16_BYTES),
        }
    return {}


def row_bytes(config: ModelConfig, share: Share, adapter_columns: int = 0) -> int:
    """On-chip bytes that one row of a step takes."""
    return sum(row_strides(config, share, adapter_columns).values())


def layout(
    config: ModelConfig, share: Share, rows: int, adapter_columns: int = 0
) -> dict[str, OnchipBuffer]:
    """All buffers for steps of at most `rows` rows, one after another from offset 0."""
    buffers: dict[str, OnchipBuffer] = {}
    offset = 0
    for name, stride in row_strides(config, share, adapter_columns).items():
        buffers[name] = OnchipBuffer(offset, stride)
        offset += stride * rows
    return buffers
