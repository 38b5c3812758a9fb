"""The end of a list: boards' votes on what they gathered, and in a GENERATE on the next token."""

from __future__ import annotations

from typing import Any

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Ballot, Gather, MoveRows
from lora_sdk.compile.parts import Lowering
from lora_sdk.plan.collectives import votes

VOTE_BYTES = abi.dtype("vote").itemsize


def lower_ballot(part: Lowering) -> None:
    """Appends BALLOT and, on several boards, the gather of the votes: from the results into the
    on-chip buffer, over the links, back into the results."""
    control, rank = part.board.control, part.board.rank
    part.builder.finish(
        Ballot,
        what="ballot",
        argmax_offset=control.argmax_offset if part.board.share.vocabulary else 0,
        votes_offset=control.votes_offset,
        ring_offset=control.ring_offset,
    )
    if part.plan.size == 1:
        return
    bank, size = part.plan.overlay.control_bank, part.plan.size
    own, whole = rank * VOTE_BYTES, size * VOTE_BYTES
    gathered = votes(size)
    event = _move(
        part,
        None,
        what="own vote",
        x_bank=bank,
        x_offset=control.votes_offset + own,
        y_bank=abi.BANK_ONCHIP,
        y_offset=own,
        bytes=VOTE_BYTES,
    )
    event = part.builder.emit(
        Gather,
        event,
        what="gather votes",
        flags=abi.FLAG_VOTES,
        offset=0,
        stride=whole,
        columns=gathered.columns,
        share_unit=gathered.share_unit,
        segment_unit=gathered.segment_unit,
        element_bytes=gathered.element_bytes,
        collective=len(part.plan.collectives),
    )
    _move(
        part,
        event,
        what="votes",
        x_bank=abi.BANK_ONCHIP,
        x_offset=0,
        y_bank=bank,
        y_offset=control.votes_offset,
        bytes=whole,
    )


def _move(part: Lowering, after: Event | None, **fields: Any) -> Event:
    """One row, so strides are not used."""
    strides = {"x_stride": fields["bytes"], "y_stride": fields["bytes"]}
    return part.builder.emit(MoveRows, after, flags=abi.FLAG_VOTES, **strides, **fields)
