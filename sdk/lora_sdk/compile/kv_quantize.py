"""Q, K and V on their way to the cache and to attention: unchanged, all in INT8 with static scales
(LORA-Q), or K and V in INT8 with one scale per head and position."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Vector, float_bits
from lora_sdk.compile.matmul import reciprocal_bits
from lora_sdk.compile.parts import Lowering
from lora_sdk.model.operations import Buffer, StoreKv
from lora_sdk.model.quantization import kv_of
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES


def quantize_qkv(part: Lowering, after: Event | None, store: StoreKv) -> Event | None:
    """Quantizes `store`'s source, after RoPE, as the cache requires."""
    kind = kv_of(part.config)
    if kind.static:
        return _static(part, after, store)
    if kind.by_head:
        return _by_head(part, after, store.source)
    return after


def store_operands(part: Lowering, source: Buffer) -> dict[str, int]:
    """KV_STORE's fields of k and v."""
    kind, (q, kv) = kv_of(part.config), qkv_columns(part)
    if kind.static:
        return _store(part.buffer("qkv8"), q, kv, 1)
    if not kind.by_head:
        return _store(part.own(source), q, kv, FP16_BYTES)
    scales, heads = part.buffer("kv_scales"), len(part.board.share.kv_heads)
    return {
        **_store(part.buffer("kv8"), 0, kv, 1),
        "k_scales": scales.offset,
        "v_scales": scales.offset + heads * FP16_BYTES,
        "scale_stride": scales.stride,
    }


def attention_operands(part: Lowering, layer: int, source: Buffer) -> dict[str, int]:
    """ATTENTION's fields of q, and its scales."""
    config = part.config
    rows, _ = query_rows(part, source)
    if kv_of(config).static:
        scales, factor = part.scales.of_layer(layer), config.attention_factor(layer)
        return {
            **part.address("q", rows),
            "scale": float_bits(float(np.float32(float(scales.q) * float(scales.k) * factor))),
            "v_scale": float_bits(float(scales.v)),
        }
    return {
        **part.address("q", rows),
        "scale": float_bits(float(config.attention_scale(layer))),
    }


def query_rows(part: Lowering, source: Buffer) -> tuple[OnchipBuffer, int]:
    """The rows that begin with q as attention reads it, and the bytes of each value."""
    if kv_of(part.config).static:
        return part.buffer("qkv8"), 1
    return part.own(source), FP16_BYTES


def qkv_columns(part: Lowering) -> tuple[int, int]:
    """Columns of q, and of k or v, on this board."""
    share, head_dim = part.board.share, part.config.head_dim
    return len(share.q_heads) * head_dim, len(share.kv_heads) * head_dim


def _store(buffer: OnchipBuffer, first: int, kv: int, size: int) -> dict[str, int]:
    """KV_STORE's fields of k and v, `kv` columns each, that begin at column `first` of a buffer."""
    k = buffer.offset + first * size
    return {"k_offset": k, "v_offset": k + kv * size, "stride": buffer.stride}


def _static(part: Lowering, after: Event | None, store: StoreKv) -> Event | None:
    """q, k and v by the layer's static scales, all in `qkv8`; without q where it comes last."""
    for name in "kv" if part.queries_last else "qkv":
        after = part.builder.emit(Vector, after, **_by_scale(part, store, name))
    return after


def quantized_queries(part: Lowering, store: StoreKv) -> dict[str, Any]:
    """VECTOR's fields of q by the layer's static scale."""
    return _by_scale(part, store, "q")


def _by_scale(part: Lowering, store: StoreKv, name: str) -> dict[str, Any]:
    assert store.layer is not None
    scales, (q, kv) = part.scales.of_layer(store.layer), qkv_columns(part)
    columns, scale = {
        "q": (range(q), scales.q), "k": (range(q, q + kv), scales.k),
        "v": (range(q + kv, q + 2 * kv), scales.v),
    }[name]  # fmt: skip
    return {
        "what": f"quantize {name}",
        "op": abi.VEC_QUANTIZE,
        "columns": len(columns),
        "scalar": reciprocal_bits(scale),
        **_moved("x", part, part.own(store.source), columns.start * FP16_BYTES),
        **_moved("y", part, part.buffer("qkv8"), columns.start),
    }


def _by_head(part: Lowering, after: Event | None, source: Buffer) -> Event | None:
    """k and v in `kv8`, their scales in `kv_scales`; q stays FP16."""
    q, kv = qkv_columns(part)
    return part.builder.emit(
        Vector,
        after,
        what="quantize heads",
        op=abi.VEC_QUANTIZE_HEADS,
        columns=2 * kv,
        extra=part.config.head_dim,
        **_moved("x", part, part.own(source), q * FP16_BYTES),
        **part.address("y", part.buffer("kv8")),
        **part.address("z", part.buffer("kv_scales")),
    )


def _moved(letter: str, part: Lowering, buffer: OnchipBuffer, offset: int) -> dict[str, Any]:
    return part.address(letter, OnchipBuffer(buffer.offset + offset, buffer.stride))
