"""What follows the last block, for the selected rows alone: final norm, project_out, lm_head."""

from __future__ import annotations

from lora_host import abi
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import MoveRows, Vector
from lora_sdk.compile.parts import Lowering
from lora_sdk.compile.products import product
from lora_sdk.plan.control import ARGMAX_BYTES
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES

SELECTED = abi.FLAG_SELECTED


def lower_head(part: Lowering, stream: Event | None) -> None:
    """From the last residual to FP32 logits and their greatest in the control bank."""
    event, source, columns = _last_hidden(part, stream), "head", part.board.share.hidden
    if part.config.embed_dim != part.config.hidden:
        embed = part.board.share.embed
        target = part.local("embed", embed)
        event = product(part, event, "project_out", source, columns, target, SELECTED)
        source, columns = "embed", embed
    control = part.board.control
    logits = OnchipBuffer(control.logits_offset, control.logits_stride)
    bank = part.plan.overlay.control_bank
    event = product(
        part, event, "lm_head", source, columns, logits, SELECTED, y_bank=bank, y_type=abi.FP32
    )
    vocabulary = part.board.share.vocabulary
    part.builder.emit(
        Vector,
        event,
        what="argmax",
        flags=SELECTED,
        op=abi.VEC_ARGMAX,
        columns=len(vocabulary),
        first=vocabulary.start,
        y_bank=bank,
        **part.address("x", logits),
        **part.address("y", OnchipBuffer(control.argmax_offset, ARGMAX_BYTES)),
    )


def _last_hidden(part: Lowering, stream: Event | None) -> Event | None:
    """The selected rows, packed, through the final norm where the model has one."""
    hidden = part.board.share.hidden
    head = part.local("head", hidden)
    packed = part.buffer("packed") if part.config.final_norm else head
    event = stream
    if hidden:
        event = part.builder.emit(
            MoveRows,
            stream,
            what="pack selected rows",
            flags=SELECTED | abi.FLAG_PACK,
            x_bank=abi.BANK_ONCHIP,
            y_bank=abi.BANK_ONCHIP,
            bytes=len(hidden) * FP16_BYTES,
            **part.address("x", part.stream()),
            **part.address("y", packed),
        )
    if not part.config.final_norm:
        return event
    return part.norm(event, "final_norm", packed, head, flags=SELECTED)
