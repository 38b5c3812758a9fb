"""Dispatch, host accesses and checksums of weights, added to the units' time of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lora_lab.timing import host_access
from lora_lab.timing.command_count import command_count
from lora_lab.timing.control import VOTES, Dispatch, by_boards, firmware_dispatch
from lora_lab.timing.facts import board_facts
from lora_lab.timing.ops import DISPATCH, HOST, LINK_EXPOSED, SCRUB
from lora_lab.timing.schedule import Span, Timeline
from lora_lab.timing.sequencer import sequencer_dispatch
from lora_sdk.recovery.sum_pace import SumFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lora_lab.timing.adapter_ops import AdapterUse
    from lora_lab.timing.designs import ArrayDesign
    from lora_lab.timing.layout import Layout
    from lora_lab.timing.machine import Machine
    from lora_lab.timing.step import StepShape
    from lora_sdk.model.spec import ModelConfig


DISPATCHERS: Mapping[str, Callable[[int, float], Dispatch]] = {
    "firmware": firmware_dispatch,
    "sequencer": sequencer_dispatch,
}
"""By a design's `control`."""


def overheads_of(
    design: ArrayDesign,
    board: str,
    config: ModelConfig,
    layout: Layout,
    machine: Machine,
    adapter: AdapterUse | None = None,
) -> Overheads | None:
    """What is charged to a design; None if its control is ideal."""
    if design.control == "ideal":
        return None
    boards, integer = layout.boards, design.activation_bytes == 1
    commands = command_count(config, boards, integer, adapter, layout.stages)
    dispatch = DISPATCHERS[design.control](boards, machine.clock_hz)
    return Overheads(board, boards, machine, commands, dispatch)


class Paced(Protocol):
    """Cycles of its clock that votes take: of a start, and of a hop."""

    @property
    def clock_hz(self) -> float: ...
    @property
    def start_cycles(self) -> float: ...
    @property
    def hop_cycles(self) -> float: ...


class Overheads:
    """What a step of `commands` commands costs besides its units. Between two commands no unit runs
    for `Dispatch.command` cycles in the mean, however the units overlap, so the cost is added to
    their time and not hidden behind it."""

    def __init__(
        self, board: str, boards: int, machine: Paced, commands: int, dispatch: Dispatch,
        listed: bool = False, summed: bool = True,
    ) -> None:  # fmt: skip
        """`commands` of a step. `listed`: its operators are those of a command list, which has
        the boards' votes; else their time is added. `summed`: weights are, between steps."""
        self.runtime = board_facts(board).runtime
        self.boards, self.commands = boards, commands
        self.clock_hz = machine.clock_hz
        self.sum_share = SumFacts().share if summed else 0.0
        self.dispatch = dispatch
        self.vote_cycles = 0.0
        if boards > 1 and not listed:
            self.vote_cycles = VOTES * machine.start_cycles + boards // 2 * machine.hop_cycles

    def charge(self, timeline: Timeline, shape: StepShape) -> Timeline:
        """`timeline` with all of them. Spans are moved: the gaps between them are equal. Where
        boards choose the token, the host's share is that of a full run. Weights are summed between
        steps, in their share of the units' time."""
        alone = by_boards(shape)
        head, gaps = self.dispatch.before(shape), self.dispatch.between(self.commands)
        votes = self.vote_cycles if shape.rows else 0.0
        ran = (timeline.cycles + head + gaps) / self.clock_hz
        first = host_access.before(self.runtime, self.boards) * self.clock_hz
        last = host_access.after(self.runtime, self.boards, ran) * self.clock_hz
        if alone:
            first, last = host_access.a_token(self.runtime, self.boards) * self.clock_hz, 0.0
        gap = gaps / max(1, len(timeline.spans) - 1)
        spans = tuple(
            Span(span.index, span.begin + moved, span.end + moved)
            for number, span in enumerate(timeline.spans)
            for moved in (first + head + number * gap,)
        )
        sampled = shape.rows == shape.sampled > 0  # steps of a prompt are few
        sums = self.sum_share * timeline.cycles if sampled else 0.0
        added = {DISPATCH: head + gaps, HOST: first + last, SCRUB: sums}
        if votes:
            added[LINK_EXPOSED] = timeline.by.get(LINK_EXPOSED, 0.0) + votes
        return replace(
            timeline,
            cycles=timeline.cycles + head + gaps + first + last + votes + sums,
            by={**timeline.by, **added},
            spans=spans,
        )
