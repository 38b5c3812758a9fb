"""What a vector operation makes the pipes of a card with channels do
(overlays/rtl/vfu/vector_pipes.sv): how often, by name.

`row`; `group`, a head; `chunk`, of 32 columns, in rotations of 32 pairs; `element`, of the longest
segment: eight segments are summed side by side; `line`, of logits."""

from __future__ import annotations

from math import ceil

from lora_host import abi
from lora_lab.timing.vector_counts import CHUNK, Counts, segments
from lora_sdk.compile.isa import Vector

TWO_OPERANDS = frozenset(
    {abi.VEC_RESIDUAL, abi.VEC_RESIDUAL_SCALED, abi.VEC_RMS_APPLY, abi.VEC_SWIGLU}
)
PIPED = TWO_OPERANDS | {abi.VEC_QUANTIZE, abi.VEC_RMS_SUMS, abi.VEC_ROPE, abi.VEC_ARGMAX}
NO_RESULTS = frozenset({abi.VEC_RMS_SUMS, abi.VEC_ROPE})  # in y


def on_pipes(channels: int, command: Vector) -> bool:
    """Whether a card of so many channels runs it there (pipes_take of pipe_types.sv)."""
    if not channels or command.op not in PIPED:
        return False
    at = [command.x_offset, command.x_stride]
    if command.op in TWO_OPERANDS or command.op == abi.VEC_RMS_SUMS:
        at += [command.z_offset, command.z_stride]
    if command.op == abi.VEC_ARGMAX:
        records = command.y_offset, command.y_stride
        return all(place % abi.LINE_BYTES == 0 for place in at) and not any(
            place % abi.dtype("argmax").itemsize for place in records
        )
    if command.op not in NO_RESULTS:
        at += [command.y_offset, command.y_stride]
    heads = command.op != abi.VEC_ROPE or command.extra % (2 * CHUNK) == 0
    starts = command.op != abi.VEC_RMS_SUMS or command.first % CHUNK == 0
    return heads and starts and all(place % abi.LINE_BYTES == 0 for place in at)


def pipe_counts(command: Vector, rows: int) -> Counts:
    """Of a command on `rows` rows."""
    chunks = ceil(command.columns / CHUNK)
    if command.op == abi.VEC_RMS_SUMS:
        found = segments(command.extra, command.first, command.columns)
        return {"command": 1, "row": rows, "element": rows * max(found, default=0)}
    if command.op == abi.VEC_ARGMAX:
        lines = ceil(command.columns / (abi.LINE_BYTES // 4))
        return {"command": 1, "row": rows, "line": rows * lines}
    if command.op == abi.VEC_ROPE:
        heads = rows * (command.columns // command.extra)
        pairs = command.extra // 2 // CHUNK
        return {"command": 1, "row": rows, "group": heads, "chunk": heads * pairs}
    return {"command": 1, "row": rows, "chunk": rows * chunks}
