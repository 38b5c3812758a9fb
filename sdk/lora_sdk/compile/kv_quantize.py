"""Q, K and V on their way to the cache and to attention: as they are, all in INT8 by static scales
(LORA-Q), or K and V in INT8 with a scale of every head and position."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Vector, float_bits
from lora_sdk.compile.parts import Lowering
from lora_sdk.compile.products import reciprocal_bits
from lora_sdk.model.quantization import kv_of
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES


class QkvPlaces(NamedTuple):
    """Where KV_STORE and ATTENTION find q, k and v: fields of these commands."""

    store: dict[str, int]
    attention: dict[str, int]


def quantize_qkv(part: Lowering, after: Event | None, layer: int) -> tuple[Event | None, QkvPlaces]:
    """What stands between `qkv`, rotated, and the cache, with the scales of attention."""
    kind, config = kv_of(part.config), part.config
    if kind.static:
        return _static(part, after, layer)
    qkv = part.buffer("qkv")
    attention = {
        "q_offset": qkv.offset,
        "q_stride": qkv.stride,
        "scale": float_bits(float(config.attention_scale(layer))),
    }
    if kind.by_head:
        return _by_head(part, after, attention)
    return after, QkvPlaces(_store(part, qkv, _columns(part)[0], FP16_BYTES), attention)


def _columns(part: Lowering) -> tuple[int, int]:
    """Columns of q, and of k or v, on this board."""
    share, head_dim = part.board.share, part.config.head_dim
    return len(share.q_heads) * head_dim, len(share.kv_heads) * head_dim


def _store(part: Lowering, buffer: OnchipBuffer, first: int, size: int) -> dict[str, int]:
    """KV_STORE's fields of k and v that begin at column `first` of a buffer."""
    kv = _columns(part)[1]
    k = buffer.offset + first * size
    return {"k_offset": k, "v_offset": k + kv * size, "stride": buffer.stride}


def _static(part: Lowering, after: Event | None, layer: int) -> tuple[Event | None, QkvPlaces]:
    """q, k and v by the layer's static scales, all in `qkv8`."""
    scales = part.scales.of_layer(layer)
    q, kv = _columns(part)
    source, target = part.buffer("qkv"), part.buffer("qkv8")
    runs = (("q", range(q), scales.q), ("k", range(q, q + kv), scales.k),
            ("v", range(q + kv, q + 2 * kv), scales.v))  # fmt: skip
    for name, columns, scale in runs:
        after = part.builder.emit(
            Vector,
            after,
            what=f"quantize {name}",
            op=abi.VEC_QUANTIZE,
            columns=len(columns),
            scalar=reciprocal_bits(scale),
            **_moved("x", part, source, columns.start * FP16_BYTES),
            **_moved("y", part, target, columns.start),
        )
    factor = part.config.attention_factor(layer)
    attention = {
        "q_offset": target.offset,
        "q_stride": target.stride,
        "scale": float_bits(float(np.float32(float(scales.q) * float(scales.k) * factor))),
        "v_scale": float_bits(float(scales.v)),
    }
    return after, QkvPlaces(_store(part, target, q, 1), attention)


def _by_head(
    part: Lowering, after: Event | None, attention: dict[str, int]
) -> tuple[Event | None, QkvPlaces]:
    """k and v in `kv8`, their scales in `kv_scales`; q stays FP16."""
    q, kv = _columns(part)
    target, scales = part.buffer("kv8"), part.buffer("kv_scales")
    after = part.builder.emit(
        Vector,
        after,
        what="quantize heads",
        op=abi.VEC_QUANTIZE_HEADS,
        columns=2 * kv,
        extra=part.config.head_dim,
        **_moved("x", part, part.buffer("qkv"), q * FP16_BYTES),
        **part.address("y", target),
        **part.address("z", scales),
    )
    heads = len(part.board.share.kv_heads)
    store = {
        **_store(part, target, 0, 1),
        "k_scales": scales.offset,
        "v_scales": scales.offset + heads * FP16_BYTES,
        "scale_stride": scales.stride,
    }
    return after, QkvPlaces(store, attention)


def _moved(letter: str, part: Lowering, buffer: OnchipBuffer, offset: int) -> dict[str, Any]:
    return part.address(letter, OnchipBuffer(buffer.offset + offset, buffer.stride))
