"""Modelled time of steps on an overlay: the same for emulated runs, plans and `lora lab model`.
`step` is the units' time, `whole` all that a step takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_lab.timing.control import firmware_dispatch
from lora_lab.timing.list_ops import ListTiming
from lora_lab.timing.machine import machine_of_overlay
from lora_lab.timing.ops import CONTROL, Op
from lora_lab.timing.overheads import Overheads
from lora_lab.timing.schedule import Timeline, schedule
from lora_lab.timing.step import StepShape
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


@dataclass(frozen=True)
class StepTime:
    """One step: the timeline and operators of the slowest board, by rank; with stages of the
    slowest of each, one after the other. `arrivals`: the cycle at which each stage has its rows."""

    rank: int
    timeline: Timeline
    ops: Sequence[Op]
    arrivals: tuple[float, ...] = (0.0,)


class OverlayTiming:
    """Times steps of a placed model. A step takes as long as its slowest board, or as the slowest
    ones of its stages take one after the other. Each board is timed as if its neighbors kept pace.
    `commands`: the boards' lists by rank. Without them the lists are
    lowered from the plan, which gives the same lists."""

    def __init__(
        self,
        config: ModelConfig,
        plan: Plan,
        commands: Mapping[int, Sequence[Command]] | None = None,
    ) -> None:
        self.plan = plan
        self.machine = machine_of_overlay(plan.overlay)
        self._boards: dict[int, ListTiming] = {}
        self._like: dict[int, int] = {}
        seen: dict[object, int] = {}
        scales = unit_scales(config)  # the values do not affect time
        for board in plan.boards:
            share = board.share
            sizes = tuple(
                len(part)
                for part in (share.q_heads, share.kv_heads, share.hidden, share.ffn,
                             share.vocabulary, share.embed)
            )  # fmt: skip
            spilled = tuple(sorted(name for name, m in board.matrices.items() if m.spilled))
            key = share.stage.index, sizes, spilled
            like = self._like[board.rank] = seen.setdefault(key, board.rank)
            if like != board.rank:
                continue  # the same list except for addresses
            held = (
                lower(config, plan, board.rank, scales)
                if commands is None
                else (commands[board.rank])
            )
            self._boards[board.rank] = ListTiming(self.machine, plan, board.rank, held)
        self._known: dict[StepShape, StepTime] = {}

    def step(self, shape: StepShape) -> StepTime:
        """The time of one step."""
        if shape in self._known:
            return self._known[shape]
        found: list[StepTime] = []
        for stage in self.plan.stages:
            arrival = found[-1].timeline.cycles if found else 0.0
            found.append(self._stage(stage.index, shape, arrival))
        step = found[0] if len(found) == 1 else _in_turn(found)
        if len(self._known) < 4096:
            self._known[shape] = step
        return step

    def _stage(self, index: int, shape: StepShape, arrival: float) -> StepTime:
        """The slowest board of a stage that has its rows at cycle `arrival`."""
        boards = self.plan.boards
        timed = [
            self._timed(rank, shape, arrival)
            for rank in self._boards
            if boards[rank].share.stage.index == index
        ]
        return max(timed, key=lambda one: one.timeline.cycles)

    def _timed(self, rank: int, shape: StepShape, arrival: float) -> StepTime:
        ops = self._boards[rank].stage_ops(shape, arrival)
        timeline = schedule(ops, self.machine.prefetch_cycles, since=arrival)
        return StepTime(rank, timeline, ops, (arrival,))

    def whole(self, shape: StepShape, summed: bool = True) -> Timeline:
        """A step with all that it takes besides its units: dispatch by the overlay's firmware, the
        host's accesses and, if `summed`, checksums of weights."""
        found = self.step(shape)
        commands = sum(op.unit != CONTROL for op in found.ops)
        return Overheads(
            self.plan.overlay.board.name,
            self.plan.size,
            self.machine,
            commands,
            firmware_dispatch(self.plan.size, self.machine.clock_hz),
            listed=True,
            summed=summed,
        ).charge(found.timeline, shape)

    def board_step(self, rank: int, shape: StepShape) -> tuple[list[Op], Timeline]:
        """The operators of one board with their spans. Those of a stage end with the rows that it
        passes on: its part of the votes is left out."""
        arrival = self.step(shape).arrivals[self.plan.boards[rank].share.stage.index]
        ops = self._boards[self._like[rank]].stage_ops(shape, arrival)
        return ops, schedule(ops, self.machine.prefetch_cycles, keep=True)


def _in_turn(stages: Sequence[StepTime]) -> StepTime:
    """A step whose stages run one after the other."""
    last = stages[-1].timeline

    def together(name: str) -> dict[str, float]:
        total: Counter[str] = Counter()
        for stage in stages:
            total.update(getattr(stage.timeline, name))
        return dict(total)

    timeline = Timeline(
        cycles=last.cycles,
        by=together("by"),
        hidden=sum(stage.timeline.hidden for stage in stages),
        stall=sum(stage.timeline.stall for stage in stages),
        busy=together("busy"),
        spans=(),
    )
    return StepTime(
        stages[0].rank,
        timeline,
        [op for stage in stages for op in stage.ops],
        tuple(arrival for stage in stages for arrival in stage.arrivals),
    )
