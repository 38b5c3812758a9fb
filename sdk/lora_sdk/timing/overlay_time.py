"""Modelled time of steps on an overlay: the same for emulated runs, plans and `lora model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.timing.control import firmware_dispatch
from lora_sdk.timing.list_ops import ListTiming
from lora_sdk.timing.machine import machine_of_overlay
from lora_sdk.timing.ops import CONTROL, Op
from lora_sdk.timing.overheads import Overheads
from lora_sdk.timing.schedule import Timeline, schedule
from lora_sdk.timing.step import StepShape

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


@dataclass(frozen=True)
class StepTime:
    """One step: the timeline and operators of the slowest board, by rank."""

    rank: int
    timeline: Timeline
    ops: Sequence[Op]


class OverlayTiming:
    """Times steps of a placed model. A step takes as long as its slowest board. Each board is timed
    as if its neighbors kept pace. `commands`: the boards' lists by rank. Without them the lists are
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
            like = self._like[board.rank] = seen.setdefault((sizes, spilled), board.rank)
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
        slowest: StepTime | None = None
        for rank, timing in self._boards.items():
            ops = timing.ops(shape)
            timeline = schedule(ops, self.machine.prefetch_cycles)
            if slowest is None or timeline.cycles > slowest.timeline.cycles:
                slowest = StepTime(rank, timeline, ops)
        assert slowest is not None  # a plan has boards
        if len(self._known) < 4096:
            self._known[shape] = slowest
        return slowest

    def left_out(self, shape: StepShape, summed: bool = True) -> float:
        """Seconds that a step's time leaves out: dispatch by the overlay's firmware, the host's
        accesses and, if `summed`, sums of weights."""
        found = self.step(shape)
        commands = sum(op.unit != CONTROL for op in found.ops)
        charged = Overheads(
            self.plan.overlay.board.name,
            self.plan.size,
            self.machine,
            commands,
            firmware_dispatch(self.plan.size, self.machine.clock_hz),
            listed=True,
            summed=summed,
        ).charge(found.timeline, shape)
        return self.machine.seconds(charged.cycles - found.timeline.cycles)

    def board_step(self, rank: int, shape: StepShape) -> tuple[list[Op], Timeline]:
        """The operators of one board with their spans."""
        ops = self._boards[self._like[rank]].ops(shape)
        return ops, schedule(ops, self.machine.prefetch_cycles, keep=True)
