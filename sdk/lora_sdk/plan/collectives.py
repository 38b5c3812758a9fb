"""The all-gathers of one step, and the bytes they put on each link (the paper's section III)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_sdk.model import block
from lora_sdk.model import operations as ops
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.formats import matmul_format
from lora_sdk.plan.partition import shard, shares_segments
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.partition import Stage

FRAME_OVERHEAD = 32 + 4  # struct lora_frame and the CRC behind the payload
VOTE_ELEMENT = 8  # bytes of one element of a vote on the links


@dataclass(frozen=True)
class Span:
    """The boards of a gather: `boards` of the route from place `first` on, as a path. The first
    `owners` of them have the columns."""

    first: int
    boards: int
    owners: int

    def __contains__(self, place: int) -> bool:
        return self.first <= place < self.first + self.boards


@dataclass(frozen=True)
class Collective:
    """One all-gather: `columns` elements per row, sharded in units of `share_unit`, cut into eight
    segments in units of `segment_unit`. `selected`: of the selected rows only. `span`: its boards,
    None for all of a cluster without stages."""

    what: str
    columns: int
    share_unit: int
    segment_unit: int
    element_bytes: int
    selected: bool = False
    span: Span | None = None

    def blocks(self, rank: int, boards: int, rows: int) -> Iterator[int]:
        """Bytes of each block that owner `rank` of `boards` sends of a row group of `rows` rows, in
        order.

        Consecutive segments travel as one block while it fits one frame."""
        pending = 0
        for size in self._segment_bytes(rank, boards):
            if pending and (pending + size) * rows > abi.FRAME_PAYLOAD:
                yield pending * rows
                pending = 0
            pending += size
        if pending:
            yield pending * rows

    def _segment_bytes(self, rank: int, boards: int) -> Iterator[int]:
        """Bytes per row of each segment's part that lies on the board."""
        share = shard(self.columns, self.share_unit, rank, boards)
        for segment in range(abi.SEGMENTS):
            part = shard(self.columns, self.segment_unit, segment, abi.SEGMENTS)
            count = min(share.stop, part.stop) - max(share.start, part.start)
            yield max(0, count) * self.element_bytes


@dataclass
class LinkBytes:
    """Bytes that one port sends: whole frames, and their payloads alone."""

    frames: int = 0
    payload: int = 0


def quantized_late(
    config: ModelConfig, matmul: ops.Matmul, adapters: AdapterOptions | None, boards: int
) -> bool:
    """Whether each board quantizes the whole gathered row of a matmul that reads INT8, in place of
    its own columns: in plans with adapter slots, because adapters read the FP16 activation, and by
    scales of rows where more boards than abi.ROW_MAXIMA would have to exchange maxima, and of a row
    that was gathered for a router."""
    form = matmul_format(config, matmul)
    slots = adapters is not None and adapters.slots > 0
    many = form.dynamic and boards > abi.ROW_MAXIMA
    return form.integer and (slots or many or reads_routed(config, matmul))


def reads_routed(config: ModelConfig, matmul: ops.Matmul) -> bool:
    """Whether the matmul reads a row that was gathered, in FP16, for a router."""
    if matmul.gather:
        return False
    return block.describe(config).gathered_by(matmul).routes


def element_bytes(
    config: ModelConfig, matmul: ops.Matmul, adapters: AdapterOptions | None, boards: int
) -> int:
    """Bytes of an activation on the links: INT8 if boards quantize their own columns of it."""
    late = quantized_late(config, matmul, adapters, boards)
    return FP16_BYTES if late or not matmul_format(config, matmul).integer else 1


@dataclass(frozen=True)
class _Context:
    config: ModelConfig
    adapters: AdapterOptions | None
    boards: int


Gathers = Callable[[_Context, Any], Iterator[Collective]]


def _norm(context: _Context, norm: ops.Norm) -> Iterator[Collective]:
    """The exchange inside a norm: one record per segment, {T, Q} or {S} in FP32; the columns
    themselves where boards share segments."""
    if shares_segments(context.boards):
        unit, columns = abi.UNIT_COLUMNS, ops.width(context.config, norm.source.axes[0])
        yield Collective(norm.name, columns, unit, unit, FP16_BYTES, norm.selected)
        return
    record = 8 if norm.kind == "layernorm" else 4
    yield Collective(norm.name, abi.SEGMENTS, 1, 1, record, norm.selected)


def _norm_heads(context: _Context, norm: ops.NormHeads) -> Iterator[Collective]:
    """The exchange inside a norm over all heads: one FP32 sum per head."""
    if norm.whole:
        heads = ops.width(context.config, norm.axis) // context.config.head_dim
        yield Collective(norm.name, heads, 1, 1, FP32_BYTES)


def _norm_groups(context: _Context, norm: ops.NormGroups) -> Iterator[Collective]:
    """The exchange inside a norm in groups: an FP32 sum of the columns of each query head."""
    yield Collective(norm.name, context.config.heads, 1, 1, FP32_BYTES)


def _matmul(context: _Context, matmul: ops.Matmul) -> Iterator[Collective]:
    """The gather of the row before a matmul, and before it that of its maxima if boards quantize
    their own columns by a scale of the whole row. With S-LoRA the gather of h follows: each board's
    ranks of all the matmul's tensors."""
    config, adapters = context.config, context.adapters
    axis, unit = matmul.source.axes[0], abi.UNIT_COLUMNS
    if matmul.gather:
        unit *= ops.width(config, "chosen") if axis == "chosen_ffn" else 1
        by_heads = axis in ("heads", "mixed", "values")
        share = ops.width(config, axis) // config.heads if by_heads else unit
        size = element_bytes(config, matmul, adapters, context.boards)
        if size == 1 and matmul_format(config, matmul).dynamic:
            what = f"{matmul.name} maxima"
            yield Collective(what, context.boards, 1, 1, FP32_BYTES, matmul.selected)
        yield Collective(matmul.name, ops.width(config, axis), share, unit, size, matmul.selected)
    if matmul.adapts and adapters is not None and adapters.sharded:
        ranks = adapters.share(context.boards) * len(matmul.outputs)
        what = f"{matmul.name} adapter"
        columns = ranks * context.boards
        yield Collective(what, columns, ranks, ranks, FP16_BYTES, matmul.selected)


def _none(context: _Context, operation: ops.Operation) -> Iterator[Collective]:
    return iter(())


GATHERS: dict[type[ops.Operation], Gathers] = {
    ops.Norm: _norm,
    ops.NormHeads: _norm_heads,
    ops.NormGroups: _norm_groups,
    ops.Matmul: _matmul,
    ops.ExpertMatmul: _matmul,
    **dict.fromkeys(
        (ops.Embed, ops.AddPosition, ops.Rope, ops.StoreKv, ops.Attend, ops.Activate,
         ops.Elementwise, ops.PackSelected, ops.Argmax, ops.Route,
         ops.AddGated, ops.Recur, ops.GateHeads, ops.JoinHeads),
        _none,
    ),
}  # fmt: skip


def collectives(
    config: ModelConfig,
    adapters: AdapterOptions | None = None,
    boards: int = 1,
    stages: Sequence[Stage] = (),
) -> tuple[Collective, ...]:
    """All gathers of a step in the order in which boards run them, those of the votes left out.
    `stages`: each of `boards` boards; none or one: all boards run all layers."""
    context = _Context(config, adapters, boards)
    if not stages:
        return tuple(_of_block(context, block.describe(config)))
    if len(stages) == 1:
        return tuple(_of_block(context, stages[0].block(config)))
    found: list[Collective] = []
    for stage in stages:
        span = Span(stage.index * boards, boards, boards)
        described = stage.block(config)
        if boards > 1:
            found += (replace(one, span=span) for one in _of_block(context, described))
        if not stage.is_last:
            found.append(_passed(config, replace(span, boards=2 * boards)))
    return tuple(found)


def _of_block(context: _Context, described: block.Block) -> Iterator[Collective]:
    for operation in described.operations:
        yield from ops.row(GATHERS, operation)(context, operation)


def _passed(config: ModelConfig, span: Span) -> Collective:
    """The residual stream, from a stage to the next: both gather it, so that boards of both can
    compare its sum."""
    unit = abi.UNIT_COLUMNS
    return Collective("stage", config.hidden, unit, unit, FP16_BYTES, span=span)


def votes(boards: int) -> Collective:
    """The last gather of a step that has rows, over one row: each board's vote."""
    size = abi.dtype("vote").itemsize // VOTE_ELEMENT
    return Collective("votes", boards * size, size, size, VOTE_ELEMENT)


def row_groups(rows: int) -> list[int]:
    """Rows of each group of at most abi.ROW_GROUP."""
    full, rest = divmod(rows, abi.ROW_GROUP)
    return [abi.ROW_GROUP] * full + ([rest] if rest else [])


def add_traffic(
    totals: dict[tuple[int, str], LinkBytes],
    collective: Collective,
    boards: int,
    ring: bool,
    rows: int,
) -> None:
    """Adds one collective over `rows` rows to the bytes by (rank, "next" or "previous")."""
    span = collective.span or Span(0, boards, boards)
    ring = ring and collective.span is None
    for source in range(span.owners):
        number = 0  # blocks of a source are numbered through one collective
        for group in row_groups(rows):
            for size in collective.blocks(source, span.owners, group):
                forward, backward = hops(source, number, span.boards, ring)
                at = span.first + source
                _add(totals, size, [(at + hop) % boards for hop in range(forward)], "next")
                _add(totals, size, [(at - hop) % boards for hop in range(backward)], "previous")
                number += 1


def hops(source: int, block: int, boards: int, ring: bool) -> tuple[int, int]:
    """Hops of a block towards the next and the previous boards (Figure 9)."""
    if not ring:
        return boards - 1 - source, source
    far, near = boards // 2, (boards - 1) // 2  # ceil and floor of (boards - 1) / 2
    return (far, near) if block % 2 == 0 else (near, far)


def _add(
    totals: dict[tuple[int, str], LinkBytes], size: int, senders: list[int], direction: str
) -> None:
    parts = -(-size // abi.FRAME_PAYLOAD)
    for rank in senders:
        link = totals[rank, direction]
        link.frames += size + parts * FRAME_OVERHEAD
        link.payload += size
