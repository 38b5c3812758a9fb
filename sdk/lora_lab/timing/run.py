"""Modelled time of a run's steps on real boards, in addition to the measured time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_host.sim import line_rate
from lora_lab.timing.ops import SCRUB
from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.report import Totals, shares_text
from lora_lab.timing.step import StepShape
from lora_lab.timing.target import totals_of
from lora_lab.timing.trace import BoardTrace, trace_overlay, write_steps
from lora_sdk.recovery.sum_pace import SumPace

if TYPE_CHECKING:
    from lora_lab.timing.card_time import CardTiming
    from lora_sdk.compile.isa import Command
    from lora_sdk.engine.engine import Engine
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

TRACED_STEPS = 500


def _is_prefill(shape: StepShape) -> bool:
    """Rows that are not sampled; no rows at all: a prompt's positions are committed."""
    return shape.rows > shape.sampled or not shape.rows


class RunTime:
    """Counts the shapes of steps and times them on request. `commands`: the boards' lists by
    rank."""

    def __init__(
        self, config: ModelConfig, plan: Plan, commands: Mapping[int, Sequence[Command]]
    ) -> None:
        self.timing = OverlayTiming(config, plan, commands)
        self.steps: Counter[StepShape] = Counter()
        self.sums, self.summed = 0, 0  # of weights: commands, bytes
        self._pace = SumPace(plan, commands)
        self._commands = commands
        self.first: list[StepShape] = []  # in order, for a trace; the counter holds all

    def add(self, shape: StepShape) -> None:
        """A step was run."""
        self.steps[shape] += 1
        if len(self.first) < TRACED_STEPS:
            self.first.append(shape)

    def add_sums(self, commands: int, size: int) -> None:
        """The busiest board has summed `size` bytes of weights between steps."""
        self.sums += commands
        self.summed += size

    @property
    def sum_seconds(self) -> float:
        """Modelled seconds of all sums."""
        return self._pace.seconds(self.summed, self.sums)

    def seconds(self, shape: StepShape) -> float:
        """Modelled seconds of one step; sums of weights are counted by themselves."""
        return self.timing.machine.seconds(self.timing.whole(shape, False).cycles)

    def card_cycles(self, lanes: int, latency: float) -> float | None:
        """Modelled cycles of all steps on a simulated card with FP16 arrays of `lanes` and memory
        that answers after `latency` cycles. None for several boards, whose waits for each other
        that model does not have."""
        if self.timing.plan.size > 1:
            return None
        from lora_lab.timing.card_costs import card_costs
        from lora_lab.timing.card_time import CardTiming

        plan, rank = self.timing.plan, min(self._commands)
        costs = replace(card_costs(), lanes=lanes, line_rate=line_rate(plan.overlay))
        card = CardTiming(plan, rank, self._commands[rank], latency, costs)
        return sum(n * cycles for _, n, cycles in self._steps_on(card))

    def _steps_on(self, card: CardTiming) -> Iterator[tuple[StepShape, int, float]]:
        """Shapes of steps, how many of each, and cycles of one."""
        from lora_lab.timing.card_step import card_step_of

        for shape, count in self.steps.items():
            yield shape, count, card.step(card_step_of(shape)).cycles

    def source_line(self) -> str:
        """What the hardware source of this project would take for the steps, as its units were
        simulated."""
        from lora_lab.timing.source_target import source_card

        plan, rank = self.timing.plan, min(self._commands)
        clock = plan.overlay.clock_hz
        seconds = {True: 0.0, False: 0.0}
        try:
            card = source_card(plan, rank, self._commands[rank])
            for shape, count, cycles in self._steps_on(card):
                seconds[_is_prefill(shape)] += count * cycles / clock
        except RequestError as error:
            return f"not modelled: this project's hardware source; {error}"
        waits = "boards' waits for each other and " if plan.size > 1 else ""
        return (
            f"modelled: this project's hardware source on {plan.size} x {plan.board.name} at "
            f"{clock / 1e6:.0f} MHz, without {waits}host accesses: "
            f"{sum(seconds.values()) * 1e3:.3f} ms in all, "
            f"{self._by_phase(seconds[True], seconds[False])}"
        )

    def _by_phase(self, prefill: float, then: float) -> str:
        steps = sum(n for shape, n in self.steps.items() if shape.rows == shape.sampled > 0)
        rows = sum(n * s.sampled for s, n in self.steps.items() if s.rows == s.sampled)
        found = f"prefill {prefill * 1e3:.3f} ms"
        if steps:
            each = then / steps * 1e3
            found += f", {each:.3f} ms per step after it ({steps} steps, {rows} rows sampled)"
        return found

    def totals(self, prefill: bool) -> Totals:
        """Over the steps of prompts (`_is_prefill`), or over all others."""
        found = Totals()
        for shape, count in self.steps.items():
            if _is_prefill(shape) == prefill:
                whole, clock = self.timing.whole(shape, False), self.timing.machine.clock_hz
                found.add(totals_of(self.timing.step(shape).ops, whole, clock), count)
        return found

    def write_trace(self, path: Path) -> int:
        """Write the first steps as a Perfetto trace, in sequence. Returns the number of dropped
        events. RequestError: the file cannot be written."""
        later = sum(self.steps.values()) - len(self.first)
        return write_steps(path, self._traces(), later)

    def _traces(self) -> Iterator[list[BoardTrace]]:
        offset = 0.0
        for shape in self.first:
            yield trace_overlay(self.timing, shape, offset)
            offset += self.timing.step(shape).timeline.cycles

    def lines(self) -> list[str]:
        """The report of `lora-run --stats`."""
        first, then = self.totals(True), self.totals(False)
        plan = self.timing.plan
        boards = f"{plan.size} x {plan.board.name}"
        ideal = f"{plan.overlay.name} on {boards} with ideal units, not built"
        whole = Totals(self.sum_seconds, {SCRUB: self.sum_seconds} if self.sums else {})
        whole.add(first)
        whole.add(then)
        found = [
            self.source_line(),
            f"modelled: {ideal}: {whole.seconds * 1e3:.3f} ms in all, "
            f"{self._by_phase(first.seconds, then.seconds)}",
        ]
        if whole.seconds:
            found.append(
                f"modelled: of these {whole.seconds * 1e3:.3f} ms: "
                f"{shares_text(whole.by, whole.seconds)}"
            )
        if self.sums:
            found.append(
                f"modelled: {self.sums} sums of weights by each board, "
                f"{self.sum_seconds * 1e3:.3f} ms of it"
            )
        return found


def time_engine(engine: Engine) -> RunTime:
    """Record from now on how long an engine's steps would take on real boards: modelled, not
    measured. RequestError: a command of the lists has no timing."""
    time = RunTime(engine.config, engine.plan, engine.command_lists)
    engine.record_steps(time)
    return time
