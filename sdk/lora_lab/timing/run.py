"""Modelled time of a run's steps on real boards, in addition to the measured time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.report import Totals
from lora_lab.timing.step import StepShape
from lora_lab.timing.target import totals_of
from lora_lab.timing.trace import BoardTrace, trace_overlay, write_steps
from lora_sdk.recovery.sum_pace import SumPace

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.engine.engine import Engine
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

TRACED_STEPS = 500


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
        """Modelled seconds of one step."""
        return self.timing.step(shape).timeline.cycles / self.timing.machine.clock_hz

    def card_cycles(self, lanes: int, latency: float) -> float | None:
        """Modelled cycles of all steps on a simulated card with FP16 arrays of `lanes` and memory
        that answers after `latency` cycles. None for several boards, whose links that model does
        not have."""
        from lora_lab.timing.card_costs import card_costs
        from lora_lab.timing.card_step import card_step_of
        from lora_lab.timing.card_time import CardTiming

        plan = self.timing.plan
        if plan.size > 1:
            return None
        costs = replace(card_costs(), lanes=lanes)
        card = CardTiming(plan, 0, self._commands[0], latency, costs)
        return sum(n * card.step(card_step_of(step)).cycles for step, n in self.steps.items())

    def totals(self, prefill: bool) -> Totals:
        """Sums over the steps with rows that are not sampled (prompts), or over all others."""
        found = Totals()
        for shape, count in self.steps.items():
            if (shape.rows > shape.sampled) == prefill:
                time = self.timing.step(shape)
                clock = self.timing.machine.clock_hz
                found.add(totals_of(time.ops, time.timeline, clock), count)
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
        steps = sum(n for shape, n in self.steps.items() if shape.rows == shape.sampled > 0)
        rows = sum(n * s.sampled for s, n in self.steps.items() if s.rows == s.sampled)
        plan = self.timing.plan
        text = f"modelled: {plan.overlay.name} on {plan.size} x {plan.board.name}"
        found = [f"{text}: prefill {first.seconds * 1e3:.3f} ms"]
        if steps:
            each = then.seconds / steps * 1e3
            found[0] += f", {each:.3f} ms per step after it ({steps} steps, {rows} rows sampled)"
        whole = Totals()
        whole.add(first)
        whole.add(then)
        if whole.seconds:
            shares = ", ".join(
                f"{part.replace('_', ' ')} {value / whole.seconds:.0%}"
                for part, value in sorted(whole.by.items(), key=lambda entry: -entry[1])
                if value > 0
            )
            found.append(f"modelled: of {whole.seconds * 1e3:.3f} ms: {shares}")
            more = sum(n * self.timing.left_out(shape, False) for shape, n in self.steps.items())
            found.append(
                f"modelled: without dispatch by the firmware and host accesses, "
                f"about {more * 1e3:.3f} ms more"
            )
        if self.sums:
            found.append(
                f"modelled: {self.sums} sums of weights by each board, "
                f"{self.sum_seconds * 1e3:.3f} ms"
            )
        return found


def time_engine(engine: Engine) -> RunTime:
    """Record from now on how long an engine's steps would take on real boards: modelled, not
    measured. RequestError: a command of the lists has no timing."""
    time = RunTime(engine.config, engine.plan, engine.command_lists)
    engine.record_steps(time)
    return time
