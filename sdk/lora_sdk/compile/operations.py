"""Lowers each kind of operation to commands of one board: vector operations, matmuls, attention,
moves (III.A, Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import KvStore, MoveRows, Vector, float_bits
from lora_sdk.compile.join_heads import join_heads
from lora_sdk.compile.kv_quantize import (
    attention_operands,
    qkv_columns,
    quantize_qkv,
    quantized_queries,
    query_rows,
    store_operands,
)
from lora_sdk.compile.matmul import lower_matmul
from lora_sdk.compile.parts import Lowering
from lora_sdk.compile.recurrence import norm_groups, recur
from lora_sdk.model import operations as ops
from lora_sdk.plan.control import ARGMAX_BYTES
from lora_sdk.plan.onchip import NORM_ROW, OnchipBuffer
from lora_sdk.plan.partition import first_columns, shares_segments
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES

ACTIVATIONS = {
    "relu": abi.VEC_RELU,
    "relu2": abi.VEC_RELU,
    "gelu_tanh": abi.VEC_GELU_TANH,
    "gelu_erf": abi.VEC_GELU_ERF,
}
GATED = {
    "silu": abi.VEC_SWIGLU,
    "gelu_tanh": abi.VEC_GEGLU,
}
SLOPES = {
    "bloom": abi.SLOPE_DISTANCE,
    "falcon": abi.SLOPE_BF16_POSITION,
}
LEAST_WEIGHTS = {1e-20: 1, 1e-6: 2}
"""What is added to the sum of a row's weights -> how a command says so."""
NORMS = {
    "layernorm": ("layer norm", abi.VEC_LN_SUMS, abi.VEC_LN_APPLY),
    "rmsnorm": ("rms norm", abi.VEC_RMS_SUMS, abi.VEC_RMS_APPLY),
}


def lower_operations(
    part: Lowering, operations: Iterable[ops.Operation], after: Event | None
) -> Event | None:
    """Emits the commands of operations; each waits for the previous one. Returns the last event."""
    for operation in operations:
        after = ops.row(COMMANDS, operation)(part, after, operation)
    return after


def _embed(part: Lowering, after: Event | None, embed: ops.Embed) -> Event | None:
    columns = part.columns(embed.target)
    if not columns:
        return after
    scaled = embed.scale != 1
    return part.builder.emit(
        Vector,
        after,
        what="embed",
        op=abi.VEC_EMBED_SCALED if scaled else abi.VEC_EMBED,
        columns=len(columns),
        **({"scalar": float_bits(embed.scale)} if scaled else {}),
        first=columns.start,
        **part.tokens(),
        **(part.positions() if embed.positions else {}),
        **part.address("y", part.own(embed.target)),
    )


def _add_position(part: Lowering, after: Event | None, add: ops.AddPosition) -> Event | None:
    columns = part.columns(add.target)
    if not columns:
        return after
    return part.builder.emit(
        Vector,
        after,
        what="add position",
        op=abi.VEC_ADD_POSITION,
        columns=len(columns),
        first=columns.start,
        **part.positions(),
        **part.address("x", part.own(add.target)),
        **part.address("y", part.own(add.target)),
    )


def _norm(part: Lowering, after: Event | None, norm: ops.Norm) -> Event | None:
    """Sums over the board's own columns, their gather, then the norm itself (III.B). Where boards
    share segments, sums of all columns behind the gather of these."""
    name, _, apply = NORMS[norm.kind]
    columns = first_columns(part.config, part.board.share, norm.source)
    fields: dict[str, Any] = {
        "flags": part.flags(norm),
        "columns": len(columns),
        "first": columns.start,
        "extra": ops.width(part.config, norm.source.axes[0]),
        **part.address("x", part.own(norm.source)),
        **part.address("z", part.buffer("sums")),
    }
    sums = _sums_of_row if shares_segments(part.plan.stage_boards) else _own_sums
    after = sums(part, after, norm, fields)
    if not columns:
        return after
    vectors = {vector: f"{norm.name}.{vector}" for vector in norm.vectors}
    return part.builder.emit(
        Vector,
        after,
        what=name,
        op=apply,
        scalar=float_bits(norm.eps),
        **_one_plus(norm.one_plus, norm.numerator, fields),
        **part.address("y", part.own(norm.target)),
        **(part.table_a(vectors["gamma"]) if "gamma" in vectors else {}),
        **(part.table_b(vectors["beta"]) if "beta" in vectors else {}),
    )


def _own_sums(
    part: Lowering, after: Event | None, norm: ops.Norm, fields: dict[str, Any]
) -> Event | None:
    """Each board sums the segments that it owns."""
    name, sums, _ = NORMS[norm.kind]
    if fields["columns"]:
        after = part.builder.emit(Vector, after, what=f"{name} sums", op=sums, **fields)
    return part.gather(after, "sums", segments=False)


def _sums_of_row(
    part: Lowering, after: Event | None, norm: ops.Norm, fields: dict[str, Any]
) -> Event | None:
    """Each board sums all segments, of rows whose columns it has gathered."""
    name, sums, _ = NORMS[norm.kind]
    columns = first_columns(part.config, part.board.share, norm.source)
    row = part.buffer(NORM_ROW)
    if columns:
        after = part.builder.emit(
            MoveRows,
            after,
            what=f"{name} columns",
            flags=part.flags(norm),
            x_bank=abi.BANK_ONCHIP,
            y_bank=abi.BANK_ONCHIP,
            bytes=len(columns) * FP16_BYTES,
            **part.address("x", part.own(norm.source)),
            **part.address("y", part.within(NORM_ROW, columns)),
        )
    after = part.gather(after, NORM_ROW, segments=False)
    if not columns:
        return after
    whole = {"columns": fields["extra"], "first": 0, **part.address("x", row)}
    return part.builder.emit(Vector, after, what=f"{name} sums", op=sums, **{**fields, **whole})


def _one_plus(chosen: bool, numerator: float, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` of an RMSNorm by 1 + gamma, where that is `chosen`."""
    if not chosen:
        return fields
    flags = fields.get("flags", 0) | abi.FLAG_ONE_PLUS
    return {**fields, "flags": flags, "b_line": float_bits(numerator)}


def _norm_heads(part: Lowering, after: Event | None, norm: ops.NormHeads) -> Event | None:
    """Each head by itself, or the heads' sums, their gather, then the norm of the whole row."""
    share, head_dim = part.board.share, part.config.head_dim
    queries = norm.part == "q"
    heads, qkv = share.q_heads if queries else share.kv_heads, part.own(norm.target)
    skipped = 0 if queries else len(share.q_heads) * head_dim * FP16_BYTES
    rows = OnchipBuffer(qkv.offset + skipped, qkv.stride)
    fields = {
        "columns": len(heads) * head_dim,
        "first": heads.start * head_dim,
        "extra": ops.width(part.config, norm.axis) if norm.whole else head_dim,
        **part.address("x", rows),
    }
    if norm.whole:
        fields |= part.address("z", part.buffer("head_sums"))
        what = f"sums of {norm.part} heads"
        after = part.builder.emit(Vector, after, what=what, op=abi.VEC_HEAD_SUMS, **fields)
        after = part.gather(after, "head_sums", segments=False)
    return part.builder.emit(
        Vector,
        after,
        what=f"{norm.part} norm",
        op=abi.VEC_RMS_ROW if norm.whole else abi.VEC_RMS_HEADS,
        scalar=float_bits(part.config.norm_eps),
        **_one_plus(norm.one_plus, 1.0, fields),
        **part.address("y", rows),
        **part.table_a(norm.tensor),
    )


def _rope(part: Lowering, after: Event | None, rope: ops.Rope) -> Event | None:
    q, kv = qkv_columns(part)
    if not part.queries_last:
        return _rotate(part, after, rope, range(q + kv))
    part.late_rope = partial(_rotate, part, part.queries, rope, range(q))
    return _rotate(part, after, rope, range(q, q + kv))


def _rotate(part: Lowering, after: Event | None, rope: ops.Rope, columns: range) -> Event:
    rows = part.own(rope.target)
    rows = OnchipBuffer(rows.offset + columns.start * FP16_BYTES, rows.stride)
    return part.builder.emit(
        Vector,
        after,
        what="rope",
        op=abi.VEC_ROPE,
        columns=len(columns),
        extra=part.config.head_dim,
        **part.address("x", rows),
        **part.address("y", rows),
        **part.table_a(rope.table),
    )


def _store_kv(part: Lowering, after: Event | None, store: ops.StoreKv) -> Event | None:
    assert store.layer is not None
    stored = part.builder.emit(
        KvStore,
        quantize_qkv(part, after, store),
        what="kv store",
        head_dim=part.config.head_dim,
        kv_layer=part.kv_layer(store.layer),
        kv_heads=len(part.board.share.kv_heads),
        **store_operands(part, store.source),
    )
    if not part.queries_last:
        return stored
    after, part.queries = part.queries, None
    if part.late_rope is not None:
        after, part.late_rope = part.late_rope(), None
    return part.builder.both(stored, Vector, after, **quantized_queries(part, store))


def _attend(part: Lowering, after: Event | None, attend: ops.Attend) -> Event | None:
    config, share = part.config, part.board.share
    assert attend.layer is not None
    if attend.selected:
        after = _pack_queries(part, after, attend)
    return part.builder.attention(
        after,
        what="attention",
        flags=part.flags(attend),
        head_dim=config.head_dim,
        kv_layer=part.kv_layer(attend.layer),
        q_heads=len(share.q_heads),
        q_first=share.q_heads.start,
        kv_heads=len(share.kv_heads),
        kv_first=share.kv_heads.start,
        group=config.heads // config.kv_heads,
        **part.address("y", part.own(attend.target)),
        **attention_operands(part, attend.layer, attend.source),
        window=attend.window,
        cap=float_bits(attend.cap),
        **(_slopes(part) if attend.slopes else {}),
        **(_sinks(part, attend.sinks) if attend.sinks else {}),
    )


def _gate_heads(part: Lowering, after: Event | None, gate: ops.GateHeads) -> Event | None:
    share, target = part.board.share, part.own(gate.target)
    columns = len(share.q_heads) * part.config.head_dim
    source = part.own(gate.source)
    before = columns + 2 * len(share.kv_heads) * part.config.head_dim
    gates = OnchipBuffer(source.offset + before * FP16_BYTES, source.stride)
    if gate.selected:
        after = part.pack(after, "pack gates", gates, gates, columns * FP16_BYTES)
    return part.builder.emit(
        Vector,
        after,
        what="gate heads",
        flags=part.flags(gate),
        op=abi.VEC_GATE,
        columns=columns,
        **part.address("x", target),
        **part.address("y", target),
        **part.address("z", gates),
    )


def _pack_queries(part: Lowering, after: Event | None, attend: ops.Attend) -> Event:
    """The selected rows of q, in place."""
    rows, size = query_rows(part, attend.source)
    columns = len(part.board.share.q_heads) * part.config.head_dim
    return part.pack(after, "pack queries", rows, rows, columns * size)


def _slopes(part: Lowering) -> dict[str, int]:
    """ATTENTION's fields of ALiBi."""
    table, alibi = part.board.tables["slopes"], part.config.alibi
    assert alibi is not None
    return {
        "slope_kind": SLOPES[alibi],
        "slope_bank": table.bank,
        "slope_line": table.line,
    }


def _sinks(part: Lowering, name: str) -> dict[str, int]:
    """The same of a layer's sinks."""
    table = part.board.tables[name]
    return {
        "slope_kind": abi.SLOPE_SINK,
        "slope_bank": table.bank,
        "slope_line": table.line,
    }


def _activate(part: Lowering, after: Event | None, activate: ops.Activate) -> Event | None:
    columns, source = part.columns(activate.target), part.own(activate.source)
    if not columns:
        return after
    fields = {**part.address("x", source), **part.address("y", part.own(activate.target))}
    if activate.gated:
        op = GATED[activate.kind]
        if activate.limit:
            op = abi.VEC_SWIGLU_CLAMPED
            fields |= {"scalar": float_bits(activate.limit), "extra": float_bits(activate.alpha)}
        half = OnchipBuffer(source.offset + len(columns) * FP16_BYTES, source.stride)
        fields |= part.address("z", half)
        if activate.scale != 1:
            fields["scalar"] = float_bits(activate.scale)
    else:
        op = ACTIVATIONS[activate.kind]
        fields["extra"] = 2 if activate.kind == "relu2" else 0
    return part.builder.emit(
        Vector,
        after,
        what=f"activation {activate.kind}",
        flags=part.flags(activate),
        op=op,
        columns=len(columns),
        first=columns.start,
        **fields,
    )


def _elementwise(part: Lowering, after: Event | None, op: ops.Elementwise) -> Event | None:
    columns, target = part.columns(op.target), part.own(op.target)
    if not columns:
        return after
    fields = part.address("y", target)
    for name, buffer in op.operands.items():
        fields |= part.address(name, part.own(buffer))
    if op.scalar is not None:
        fields["scalar"] = float_bits(op.scalar)
    if op.target.results:
        fields["y_bank"] = part.bank(op.target)
    else:
        fields["first"] = columns.start
    return part.builder.emit(
        Vector,
        after,
        what=op.what,
        flags=part.flags(op),
        op=op.command,
        columns=len(columns),
        **fields,
    )


def _pack(part: Lowering, after: Event | None, pack: ops.PackSelected) -> Event | None:
    columns = part.columns(pack.source)
    if not columns:
        return after
    source, target = part.own(pack.source), part.own(pack.target)
    return part.pack(after, "pack selected rows", source, target, len(columns) * FP16_BYTES)


def _route(part: Lowering, after: Event | None, route: ops.Route) -> Event | None:
    op = abi.VEC_ROUTE_CHOSEN if route.renormalize else abi.VEC_ROUTE
    fields: dict[str, int] = {}
    if route.groups > 1:
        fields["b_line"] = route.groups | route.taken << 16
    if route.factor != 1:
        fields["scalar"] = float_bits(route.factor)
    if route.sigmoid is not None:
        op = abi.VEC_ROUTE_SIGMOID
        fields = {
            "scalar": float_bits(route.sigmoid.factor),
            "first": LEAST_WEIGHTS[route.sigmoid.least] if route.renormalize else 0,
            **part.table_a(route.bias),
            "b_line": route.sigmoid.groups | route.sigmoid.taken << 16,
        }
    return part.builder.emit(
        Vector,
        after,
        what="route",
        flags=part.flags(route),
        op=op,
        columns=ops.width(part.config, "experts"),
        extra=route.chosen,
        **fields,
        **part.address("x", part.own(route.source)),
        **part.address("y", part.own(route.target)),
    )


def _add_gated(part: Lowering, after: Event | None, add: ops.AddGated) -> Event | None:
    columns, gates = part.columns(add.target), part.own(add.gate)
    if not columns:
        return after
    behind = ops.width(part.config, "experts") * FP32_BYTES
    return part.builder.emit(
        Vector,
        after,
        what="add shared expert",
        flags=part.flags(add),
        op=abi.VEC_ADD_GATED,
        columns=len(columns),
        **part.address("x", part.own(add.source)),
        **part.address("y", part.own(add.target)),
        **part.address("z", OnchipBuffer(gates.offset + behind, gates.stride)),
    )


def _argmax(part: Lowering, after: Event | None, argmax: ops.Argmax) -> Event | None:
    columns, control = part.columns(argmax.source), part.board.control
    return part.builder.emit(
        Vector,
        after,
        what="argmax",
        flags=part.flags(argmax),
        op=abi.VEC_ARGMAX,
        columns=len(columns),
        first=columns.start,
        y_bank=part.bank(argmax.source),
        **part.address("x", part.own(argmax.source)),
        **part.address("y", OnchipBuffer(control.argmax_offset, ARGMAX_BYTES)),
    )


COMMANDS: dict[type[ops.Operation], Callable[[Lowering, Event | None, Any], Event | None]] = {
    ops.Embed: _embed,
    ops.AddPosition: _add_position,
    ops.Norm: _norm,
    ops.Matmul: lower_matmul,
    ops.NormHeads: _norm_heads,
    ops.Rope: _rope,
    ops.JoinHeads: join_heads,
    ops.StoreKv: _store_kv,
    ops.Attend: _attend,
    ops.Recur: recur,
    ops.NormGroups: norm_groups,
    ops.GateHeads: _gate_heads,
    ops.Activate: _activate,
    ops.Elementwise: _elementwise,
    ops.PackSelected: _pack,
    ops.Argmax: _argmax,
    ops.Route: _route,
    ops.ExpertMatmul: lower_matmul,
    ops.AddGated: _add_gated,
}
