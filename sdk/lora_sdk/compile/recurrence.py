"""Lowers recurrences and their norms (docs/numbers.md, 3.17 to 3.20)."""

from __future__ import annotations

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Recurrence, Vector, float_bits
from lora_sdk.compile.parts import Lowering
from lora_sdk.model import operations as ops
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.partition import axis_columns
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES, group_parts

RECURRENCES = {
    "short_conv": abi.RECURRENCE_SHORT_CONV,
    "gated_delta": abi.RECURRENCE_GATED_DELTA,
    "selective_scan": abi.RECURRENCE_SELECTIVE_SCAN,
}


def recur(part: Lowering, after: Event | None, operation: ops.Recur) -> Event | None:
    """The command on the unit of the matmul before."""
    config, recurrent, share = part.config, part.config.recurrent, part.board.share
    assert operation.layer is not None and recurrent is not None
    table, columns = part.board.tables[operation.table], part.columns(operation.target)
    held = axis_columns(config, share, "mixed_values")
    heads = max(1, recurrent.value_heads // config.kv_heads)
    groups = recurrent.key_heads
    sharing = config.kv_heads // groups if 0 < groups < config.kv_heads else 0
    assert after is not None and after.unit == Recurrence.UNIT  # its matmul, on the same unit
    return part.builder.emit(
        Recurrence,
        part.moved,
        what=f"recurrence {operation.kind}",
        form=RECURRENCES[operation.kind],
        kernel=recurrent.kernel,
        kv_layer=part.kv_layer(operation.layer) + recurrent.beside,
        planes=config.planes(operation.layer) - recurrent.beside,
        key_heads=1 if sharing else groups // config.kv_heads,
        value_heads=heads,
        key_columns=recurrent.keys // recurrent.key_heads if recurrent.key_heads else 0,
        value_columns=recurrent.values // config.kv_heads // heads,
        y_first=columns.start - held.start,
        y_columns=len(columns),
        table_bank=table.bank,
        table_line=table.line,
        eps=float_bits(operation.eps),
        sharing=sharing,
        sharing_first=share.kv_heads.start % sharing if sharing else 0,
        **part.address("x", part.own(operation.source)),
        **part.address("y", part.own(operation.target)),
    )


def norm_groups(part: Lowering, after: Event | None, norm: ops.NormGroups) -> Event | None:
    """Sums of the columns that go with each query head, their gather, then each group that the
    board has a part of."""
    config, own = part.config, part.columns(norm.target)
    width = ops.width(config, norm.target.axes[0])
    head, each, sums = width // config.heads, width // norm.groups, part.buffer("head_sums")
    rows = part.own(norm.target)
    after = part.builder.emit(
        Vector, after, what="sums of groups", op=abi.VEC_HEAD_SUMS, columns=len(own),
        first=own.start, extra=width, b_line=head, **part.address("x", rows),
        **part.address("z", sums),
    )  # fmt: skip
    after = part.gather(after, "head_sums", segments=False)
    for group, columns in group_parts(config, part.board.share, norm):
        at = OnchipBuffer(rows.offset + (columns.start - own.start) * FP16_BYTES, rows.stride)
        first = group * each // head * FP32_BYTES
        after = part.builder.emit(
            Vector, after, what=f"norm of group {group}", op=abi.VEC_RMS_ROW,
            columns=len(columns), first=columns.start - group * each, extra=each, b_line=head,
            scalar=float_bits(norm.eps), **part.address("x", at), **part.address("y", at),
            **part.address("z", OnchipBuffer(sums.offset + first, sums.stride)),
            **part.table_a(f"{norm.tensor}.{group}"),
        )  # fmt: skip
    return after
