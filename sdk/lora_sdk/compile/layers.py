"""One decoder block: attention and feed-forward, norms before or after (III.A, Figure 4)."""

from __future__ import annotations

from collections.abc import Callable

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import KvStore, Vector
from lora_sdk.compile.kv_quantize import quantize_qkv
from lora_sdk.compile.parts import Lowering
from lora_sdk.compile.products import product
from lora_sdk.plan.tensors import FP16_BYTES, head_columns

ACTIVATIONS = {
    "relu": abi.VEC_RELU,
    "gelu_tanh": abi.VEC_GELU_TANH,
    "gelu_erf": abi.VEC_GELU_ERF,
}


Half = Callable[[Lowering, int, Event | None], Event | None]


def block(part: Lowering, layer: int, stream: Event | None) -> Event | None:
    """Both halves of block `layer`; returns the event of the new stream."""
    prefix = f"layer.{layer}"
    first = part.config.norm_first
    half = _norm_before if first else _norm_after
    stream = half(part, f"{prefix}.attn_norm", stream, _attention, layer)
    return half(part, f"{prefix}.mlp_norm", stream, _feed_forward, layer)


def _norm_before(
    part: Lowering, norm: str, stream: Event | None, half: Half, layer: int
) -> Event | None:
    """stream + half(norm(stream))."""
    event = part.norm(stream, norm, part.stream(), part.local("input", part.board.share.hidden))
    return part.residual(half(part, layer, event), part.stream())


def _norm_after(
    part: Lowering, norm: str, stream: Event | None, half: Half, layer: int
) -> Event | None:
    """norm(stream + half(stream)): OPT's post-LayerNorm order."""
    event = part.residual(half(part, layer, stream), part.buffer("residual"))
    return part.norm(event, norm, part.buffer("residual"), part.stream())


def _attention(part: Lowering, layer: int, event: Event | None) -> Event | None:
    """qkv, RoPE, K and V into the cache, attention, o."""
    config, share = part.config, part.board.share
    qkv, prefix = part.buffer("qkv"), f"layer.{layer}"
    event = product(part, event, f"{prefix}.qkv", "input", share.hidden, qkv)
    if config.rope is not None:
        event = part.builder.emit(
            Vector,
            event,
            what="rope",
            op=abi.VEC_ROPE,
            columns=(len(share.q_heads) + len(share.kv_heads)) * config.head_dim,
            extra=config.head_dim,
            **part.address("x", qkv),
            **part.address("y", qkv),
            **part.table_a("rope"),
        )
    event, places = quantize_qkv(part, event, layer)
    event = part.builder.emit(
        KvStore,
        event,
        what="kv store",
        head_dim=config.head_dim,
        kv_layer=layer,
        kv_heads=len(share.kv_heads),
        **places.store,
    )
    columns = head_columns(share.q_heads, config.head_dim)
    event = part.builder.attention(
        event,
        what="attention",
        head_dim=config.head_dim,
        kv_layer=layer,
        q_heads=len(share.q_heads),
        q_first=share.q_heads.start,
        kv_heads=len(share.kv_heads),
        kv_first=share.kv_heads.start,
        group=config.heads // config.kv_heads,
        **part.address("y", part.local("attention", columns)),
        **places.attention,
    )
    return product(part, event, f"{prefix}.o", "attention", columns, part.buffer("product"))


def _feed_forward(part: Lowering, layer: int, event: Event | None) -> Event | None:
    """up (and gate), activation, down."""
    prefix, share = f"layer.{layer}", part.board.share
    event = product(part, event, f"{prefix}.up", "input", share.hidden, part.buffer("up"))
    event = _activation(part, event)
    return product(part, event, f"{prefix}.down", "ffn", share.ffn, part.buffer("product"))


def _activation(part: Lowering, event: Event | None) -> Event | None:
    config, ffn, up = part.config, part.board.share.ffn, part.buffer("up")
    if not ffn:
        return event
    fields = {**part.address("x", up), **part.address("y", part.local("ffn", ffn))}
    if config.gated:
        op = abi.VEC_SWIGLU
        fields["z_offset"] = up.offset + len(ffn) * FP16_BYTES
        fields["z_stride"] = up.stride
    else:
        op = ACTIVATIONS[config.activation]
    return part.builder.emit(
        Vector,
        event,
        what=f"activation {config.activation}",
        op=op,
        columns=len(ffn),
        first=ffn.start,
        **fields,
    )
