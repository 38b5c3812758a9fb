"""The end of a list: in a GENERATE the boards' votes on the next token, gathered over the links."""

from __future__ import annotations

from typing import Any

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Ballot, Gather, MoveRows
from lora_sdk.compile.parts import Lowering

VOTE_BYTES = abi.dtype("vote").itemsize
ELEMENT_BYTES = 8
COLUMNS = VOTE_BYTES // ELEMENT_BYTES  # of one vote on the links


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
    if part.alone:
        return
    bank, size = part.plan.overlay.control_bank, part.plan.size
    own, whole = rank * VOTE_BYTES, size * VOTE_BYTES
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
        flags=abi.FLAG_GENERATE,
        offset=0,
        stride=whole,
        columns=size * COLUMNS,
        share_unit=COLUMNS,
        segment_unit=COLUMNS,
        element_bytes=ELEMENT_BYTES,
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
    return part.builder.emit(MoveRows, after, flags=abi.FLAG_GENERATE, **strides, **fields)
