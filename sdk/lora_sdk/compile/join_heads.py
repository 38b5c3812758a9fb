"""Lowers latent attention's moves between rows of heads (docs/numbers.md, 3.21)."""

from __future__ import annotations

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Vector
from lora_sdk.compile.kv_quantize import qkv_columns
from lora_sdk.compile.parts import Lowering
from lora_sdk.model import operations as ops
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.partition import axis_columns
from lora_sdk.plan.tensors import FP16_BYTES


def join_heads(part: Lowering, after: Event | None, join: ops.JoinHeads) -> Event | None:
    """One command. A head of k is two halves, each of a half of the rotated columns, which heads
    share, and a half of its own others."""
    config, latent, share = part.config, part.config.latent, part.board.share
    assert latent is not None
    size, kv_heads, (q, kv) = config.head_dim, len(share.kv_heads), qkv_columns(part)
    source, target = part.own(join.source), part.own(join.target)
    if join.part == "k":
        own, shared = (size - latent.rope) // 2, latent.rope // 2
        assert join.shared is not None
        keys = len(axis_columns(config, share, join.shared.axes[0]))
        fields = {
            "columns": kv,
            "extra": size // 2,
            "first": own,
            "scalar": own,
            "a_line": shared,
            "b_line": 2,
            **part.address("z", _behind(part.own(join.shared), keys)),
        }
        target = _behind(target, q)
    elif join.part == "v":
        source = _behind(source, kv_heads * (size - latent.rope))
        fields = {"columns": kv, "extra": size, "first": latent.values, "scalar": latent.values}
        target = _behind(target, q + kv)
    else:
        columns = len(share.q_heads) * latent.values
        fields = {"columns": columns, "extra": latent.values, "first": size,
                  "scalar": latent.values}  # fmt: skip
    return part.builder.emit(
        Vector,
        after,
        what=f"join heads of {join.part}",
        flags=part.flags(join),
        op=abi.VEC_JOIN_HEADS,
        **part.address("x", source),
        **part.address("y", target),
        **fields,
    )


def _behind(rows: OnchipBuffer, columns: int) -> OnchipBuffer:
    """Rows without their first columns."""
    return OnchipBuffer(rows.offset + columns * FP16_BYTES, rows.stride)
