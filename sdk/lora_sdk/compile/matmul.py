"""A matmul and the commands before it, which quantize, gather and permute its input.

Without adapter slots a board quantizes its own columns and the links carry INT8. Adapters read the
FP16 activation, so with slots the whole row is quantized after its gather; so are rows with scales
of their own on more boards than exchange maxima. The values are the same.

A row that was gathered for a router is FP16 likewise, and each matmul behind that quantizes it: the
experts', and the shared one's. The inputs of all experts that a row has chosen lie column by column
in one row, which is gathered and quantized as one.

A dynamic row has a scale of its own. The max over all its columns comes first, over all boards
where each has only its own columns. Boards without columns take part with 0 and store the scale,
because their matmuls read it.

Additions to the ordering that `lower` explains:

- The VFU writes the INT8 copy of a gathered buffer right after the FP16 one, or after its gather.
  The copy is read like the original, so what is true of `input` is true of `input8`.
- The maxima lie behind the INT8 copy's columns. A board writes its own, and its Router the others',
  after the VFU has made the copy before; a matmul reads the scale, which the VFU alone writes.
- `permuted` is written for one matmul after another. The MPU runs in order, so each matmul is done
  before the chain of commands to the next matmul's input begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_sdk.compile.adapters import lower_adapter
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Experts, Matrix, Vector, float_bits
from lora_sdk.compile.parts import Lowering
from lora_sdk.model.operations import ExpertMatmul, Matmul
from lora_sdk.plan.banks import MatrixPlacement
from lora_sdk.plan.collectives import quantized_late, reads_routed
from lora_sdk.plan.formats import act_order, matmul_format
from lora_sdk.plan.onchip import OnchipBuffer, eight, input_bytes
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES, padded


def lower_matmul(part: Lowering, after: Event | None, matmul: Matmul) -> Event | None:
    """The gather of the matmul's source and the matmul itself."""
    form = matmul_format(part.config, matmul)
    integer = form.integer
    late = quantized_late(part.config, matmul, part.plan.adapters, part.plan.stage_boards)
    permuted, source = act_order(part.config, matmul), matmul.source.name
    if matmul.gather:
        gathered = source
        if integer and not late:
            own = part.columns(matmul.source)
            quantize = _quantize_own if form.dynamic else _quantize
            after = quantize(part, after, matmul, own)
            gathered = eight(source)
        after = part.gather(after, gathered, segments=not (late or permuted))
    elif matmul.selected and not part.block.gathered_by(matmul).selected:
        after = _pack_shared(part, after, matmul, late)
    if matmul.target.results:
        part.tap_final(matmul.source, after)
    after, adapter = lower_adapter(part, after, matmul)
    if matmul.name not in part.board.matrices:
        return after
    if late:
        quantize = _quantize_whole if form.dynamic else _quantize
        after = quantize(part, after, matmul, range(matmul.row_columns))
    ready = eight(source) if integer else source
    if permuted:
        after = _permute(part, after, matmul, ready)
        ready = "permuted"
    if isinstance(matmul, ExpertMatmul):
        return _experts(part, after, matmul, ready)
    return _matrix(part, after, matmul, ready, adapter)


def _pack_shared(part: Lowering, after: Event | None, matmul: Matmul, late: bool) -> Event:
    """The selected ones of the whole rows that an earlier matmul gathered for all rows, in place.
    What is quantized late is quantized again, for this matmul."""
    integer = matmul_format(part.config, matmul).integer
    source = matmul.source.name
    rows = part.buffer(eight(source) if integer and not late else source)
    return part.pack(after, f"pack {source}", rows, rows, rows.stride)


def _quantize(part: Lowering, after: Event | None, matmul: Matmul, columns: range) -> Event | None:
    """Quantizes columns of the source to INT8 with the scale of the matmul's input."""
    if not columns:
        return after
    source = matmul.source.name
    routed = reads_routed(part.config, matmul)
    names = matmul.tensors if routed else part.block.input_tensors(matmul)
    scale = part.scales.input(names)
    return part.builder.emit(
        Vector,
        after,
        what=f"quantize {source}",
        flags=part.flags(matmul),
        op=abi.VEC_QUANTIZE,
        columns=len(columns),
        first=columns.start,
        scalar=reciprocal_bits(scale),
        **part.address("x", part.within(source, columns)),
        **part.address("y", part.within(eight(source), columns, 1)),
    )


def _quantize_own(
    part: Lowering, after: Event | None, matmul: Matmul, columns: range
) -> Event | None:
    """The board's own columns by the scale of the whole row, of which boards exchange maxima."""
    share = part.board.share
    fields = _dynamic(part, matmul, columns, share.boards)
    after = _row_max(part, after, matmul, {**fields, "first": share.rank})
    after = part.gather(
        after, eight(matmul.source.name), segments=False, at=padded(matmul.row_columns)
    )
    return _quantize_row(part, after, matmul, columns, fields)


def _quantize_whole(
    part: Lowering, after: Event | None, matmul: Matmul, columns: range
) -> Event | None:
    """A whole gathered row, which each board quantizes by itself."""
    fields = _dynamic(part, matmul, columns, 1)
    after = _row_max(part, after, matmul, fields)
    return _quantize_row(part, after, matmul, columns, fields)


def _dynamic(part: Lowering, matmul: Matmul, columns: range, maxima: int) -> dict[str, Any]:
    """Fields of both commands of a row with its own scale, `maxima` of them a row."""
    rows = part.buffer(eight(matmul.source.name))
    return {
        "flags": part.flags(matmul),
        "columns": len(columns),
        "extra": maxima,
        **part.address("x", part.within(matmul.source.name, columns)),
        **part.address("z", OnchipBuffer(rows.offset + padded(matmul.row_columns), rows.stride)),
    }


def _row_max(part: Lowering, after: Event | None, matmul: Matmul, fields: dict[str, Any]) -> Event:
    what = f"max of {matmul.source.name}"
    return part.builder.emit(Vector, after, what=what, op=abi.VEC_ROW_MAX, **fields)


def _quantize_row(
    part: Lowering, after: Event | None, matmul: Matmul, columns: range, fields: dict[str, Any]
) -> Event:
    return part.builder.emit(
        Vector,
        after,
        what=f"quantize {matmul.source.name}",
        op=abi.VEC_QUANTIZE_ROW,
        **fields,
        **part.address("y", part.within(eight(matmul.source.name), columns, 1)),
    )


def _permute(part: Lowering, after: Event | None, matmul: Matmul, source: str) -> Event:
    """Permutes a whole row to the order of the matrix's inputs."""
    spec = part.board.matrices[matmul.name].spec
    permutation, integer = spec.permutation, spec.format.integer
    assert permutation is not None  # the plan has a table for it
    return part.builder.emit(
        Vector,
        after,
        what=f"permute {matmul.short}",
        flags=part.flags(matmul),
        op=abi.VEC_PERMUTE,
        columns=input_bytes(spec.format, matmul.k) if integer else matmul.k,
        extra=1 if integer else FP16_BYTES,
        **part.table_a(permutation),
        **part.address("x", part.buffer(source)),
        **part.address("y", part.buffer("permuted")),
    )


def _matrix(
    part: Lowering, after: Event | None, matmul: Matmul, source: str, adapter: dict[str, int]
) -> Event:
    """target = source * this board's matrix (* its scales, + its bias, + the adapters' delta, whose
    command fields are `adapter`)."""
    placed = part.board.matrices[matmul.name]
    spec, flags = placed.spec, part.flags(matmul)
    fields: dict[str, Any] = dict(adapter)
    if spec.table is not None:
        table = part.board.tables[spec.table]
        fields |= {"bias_bank": table.bank, "bias_line": table.line}
    if spec.scales is not None and spec.bias is None:
        flags |= abi.FLAG_NO_BIAS
    if spec.format.dynamic:
        flags |= abi.FLAG_ROW_SCALES
    bias_line = fields.pop("bias_line", None)

    def columns(what: str, after: Event | None, own: range) -> Event:
        target = part.own(matmul.target)
        if bias_line is not None:
            fields["bias_line"] = bias_line + own.start * FP32_BYTES // abi.LINE_BYTES
        return part.builder.emit(
            Matrix,
            after,
            what=f"matrix {what}",
            flags=flags,
            **_weights(placed),
            first=placed.first + own.start // abi.BLOCK_N,
            n=len(own),
            x_bank=abi.BANK_ONCHIP,
            y_bank=part.bank(matmul.target),
            y_type=abi.FP32 if matmul.target.element_bytes == FP32_BYTES else abi.FP16,
            **part.address("x", part.buffer(source)),
            **part.address("y", after_columns(target, own.start)),
            **fields,
        )

    q = 0 if adapter or spec.bias is not None else part.queries_of(matmul)
    if not q:
        return columns(matmul.short, after, range(placed.n))
    event = columns("kv", after, range(q, placed.n))
    part.queries = columns("q", None, range(q))  # behind it, on the same unit
    return event


def _weights(placed: MatrixPlacement) -> dict[str, int]:
    """Where a matrix lies, and its format."""
    return {
        "weight_type": placed.spec.format.weight_type,
        "bank_first": placed.bank_first,
        "bank_count": placed.bank_count,
        "merge": placed.merge,
        "weight_line": placed.weight_line,
        "k": placed.k,
    }


def after_columns(rows: OnchipBuffer, count: int) -> OnchipBuffer:
    """FP16 rows without their first `count` columns."""
    return OnchipBuffer(rows.offset + count * FP16_BYTES, rows.stride)


def _experts(part: Lowering, after: Event | None, matmul: ExpertMatmul, source: str) -> Event:
    """Each row by the matrices of the experts that it has chosen, or their weighted sum."""
    placed = part.board.matrices[matmul.name]
    spec, fields = placed.spec, {}
    flags = part.flags(matmul) | (abi.FLAG_COMBINE if matmul.combine else 0)
    if spec.table is not None:
        table = part.board.tables[spec.table]
        fields = {"scale_bank": table.bank, "scale_line": table.line}
    if spec.bias is not None:
        flags |= abi.FLAG_EXPERT_BIAS
    if spec.format.dynamic:
        flags |= abi.FLAG_ROW_SCALES
    return part.builder.emit(
        Experts,
        after,
        what=f"experts {matmul.short}",
        flags=flags,
        **_weights(placed),
        first=placed.first,
        experts=matmul.experts,
        chosen=matmul.chosen,
        n=placed.n,
        **part.address("x", part.buffer(source)),
        **part.address("y", part.own(matmul.target)),
        **part.address("chosen", part.own(matmul.chosen_from)),
        **fields,
    )


def reciprocal_bits(scale: np.float32) -> int:
    """Bits of FP32(1/scale)."""
    return float_bits(float(np.float32(1) / np.float32(scale)))
