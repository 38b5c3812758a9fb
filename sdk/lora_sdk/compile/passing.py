"""Rows on their way between stages: the residual stream, nothing else.

The boards of a stage put their columns into a buffer of whole rows, which they and the boards of
the next stage gather; each of these takes its own columns out again. So stages move values and
compute none. The buffer is read and written by the DMA and by gathers alone: what a stage receives
is taken out, on the DMA, before what it passes on is put there."""

from __future__ import annotations

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import MoveRows
from lora_sdk.compile.parts import Lowering
from lora_sdk.plan.onchip import PASSED, OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES


def lower_received(part: Lowering) -> Event | None:
    """The rows of the stage before; None in the first stage, which embeds its own."""
    if part.stage.is_first:
        return None
    after = part.gather(None, PASSED, segments=False)
    return _move(part, after, "rows of the stage before", taken=True)


def lower_passed(part: Lowering, after: Event | None) -> Event | None:
    """The rows for the next stage; nothing in the last."""
    if part.stage.is_last:
        return after
    after = _move(part, after, "rows for the next stage", taken=False)
    return part.gather(after, PASSED, segments=False)


def _move(part: Lowering, after: Event | None, what: str, taken: bool) -> Event | None:
    """This board's columns, out of the whole rows (`taken`) or into them."""
    stream = part.block.stream
    columns = part.board.share.hidden
    if not columns:
        return after
    whole, own = part.within(PASSED, columns), part.own(stream)
    source, target = (whole, own) if taken else (own, whole)
    return _copy(part, after, what, source, target, len(columns) * FP16_BYTES)


def _copy(
    part: Lowering,
    after: Event | None,
    what: str,
    source: OnchipBuffer,
    target: OnchipBuffer,
    size: int,
) -> Event:
    return part.builder.emit(
        MoveRows,
        after,
        what=what,
        x_bank=abi.BANK_ONCHIP,
        y_bank=abi.BANK_ONCHIP,
        bytes=size,
        **part.address("x", source),
        **part.address("y", target),
    )
