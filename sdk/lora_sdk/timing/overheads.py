"""Dispatch and host accesses, added to the units' time of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lora_sdk.timing import host_access
from lora_sdk.timing.command_count import command_count
from lora_sdk.timing.control import firmware_dispatch
from lora_sdk.timing.facts import board_facts
from lora_sdk.timing.ops import DISPATCH, HOST
from lora_sdk.timing.schedule import Span, Timeline

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.timing.adapter_ops import AdapterUse
    from lora_sdk.timing.designs import ArrayDesign
    from lora_sdk.timing.step import StepShape


def overheads_of(
    design: ArrayDesign,
    board: str,
    config: ModelConfig,
    boards: int,
    adapter: AdapterUse | None = None,
) -> Overheads | None:
    """What is charged to a design; None if its control is ideal."""
    if design.control == "ideal":
        return None
    commands = command_count(config, boards, design.activation_bytes == 1, adapter)
    return Overheads(board, boards, design.clock_hz, commands)


class Overheads:
    """What a step of `commands` commands costs besides its units, on boards whose firmware
    dispatches. Between two commands no unit runs for `Dispatch.command` cycles in the mean, however
    the units overlap, so the cost is added to their time and not hidden behind it."""

    def __init__(self, board: str, boards: int, clock_hz: float, commands: int) -> None:
        self.runtime = board_facts(board).runtime
        self.boards, self.clock_hz, self.commands = boards, clock_hz, commands
        self.dispatch = firmware_dispatch(boards, clock_hz)

    def charge(self, timeline: Timeline, shape: StepShape) -> Timeline:
        """`timeline` with both. Spans are moved: the gaps between them are equal."""
        head, gaps = self.dispatch.before(shape), self.dispatch.between(self.commands)
        ran = (timeline.cycles + head + gaps) / self.clock_hz
        first = host_access.before(self.runtime, self.boards) * self.clock_hz
        last = host_access.after(self.runtime, self.boards, ran) * self.clock_hz
        gap = gaps / max(1, len(timeline.spans) - 1)
        spans = tuple(
            Span(span.index, span.begin + moved, span.end + moved)
            for number, span in enumerate(timeline.spans)
            for moved in (first + head + number * gap,)
        )
        added = {DISPATCH: head + gaps, HOST: first + last}
        return replace(
            timeline,
            cycles=timeline.cycles + sum(added.values()),
            by={**timeline.by, **added},
            spans=spans,
        )
