"""What the scrubber costs on boards: `data/scrub.yaml` (docs/timing.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.timing.machine import machine_of_overlay
from lora_sdk.timing.scrub_facts import ScrubFacts, scrub_facts
from lora_sdk.timing.step import decode

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

WORD = 0xFFFFFFFF
CONTEXT = 128  # positions of the token whose time the share is of


class ScrubPace:
    """How much may be summed between the steps of a placed model. Seconds are modelled."""

    def __init__(
        self,
        config: ModelConfig,
        plan: Plan,
        commands: Mapping[int, Sequence[Command]],
        facts: ScrubFacts | None = None,
    ) -> None:
        """`commands`: the boards' lists by rank. `facts`: None for those that ship."""
        self.facts = facts or scrub_facts()
        self._config, self._plan, self._commands = config, plan, commands
        self._machine = machine_of_overlay(plan.overlay)
        self.command_cycles = self._machine.start_cycles + self.facts.command_cycles

    def seconds(self, size: int, commands: int = 1) -> float:
        """Of `commands` that sum `size` bytes of a board. The DMA unit reads a line a cycle; no
        other unit runs meanwhile."""
        return self._machine.seconds(commands * self.command_cycles + size / abi.LINE_BYTES)

    def header(self, exact: bool) -> dict[str, int]:
        """Fields of struct lora_scrub: what a step, a millisecond without steps and a command
        are worth. `exact`: by `step`, else by `least_step`."""
        a_second = self.facts.share * self._machine.clock_hz * abi.LINE_BYTES
        step = self.step if exact else self.least_step
        return {
            "slice_bytes": self.facts.slice_bytes,
            "step_bytes": min(WORD, int(a_second * step)),
            "idle_bytes": min(WORD, int(a_second * 1e-3)),
            "command_bytes": int(self.command_cycles * abi.LINE_BYTES),
        }

    @cached_property
    def least_step(self) -> float:
        """A plain token takes at least this long: the weights' way out of the banks, and the starts
        of the unit with the most commands. Found at once."""
        machine = self._machine
        streamed = max(
            sum(matrix.placed_bytes for matrix in board.matrices.values())
            for board in self._plan.boards
        )
        starts = max(
            max(Counter(command.UNIT for command in listed).values())
            for listed in self._commands.values()
        )
        return machine.seconds(
            max(streamed / machine.stream_rate, float(starts * machine.start_cycles))
        )

    @cached_property
    def step(self) -> float:
        """Of a plain token, as `lora model` times it: without dispatch and host accesses."""
        from lora_sdk.timing.overlay_time import OverlayTiming

        timing = OverlayTiming(self._config, self._plan, self._commands)
        shape = decode(min(CONTEXT, self._plan.context))
        return self._machine.seconds(timing.step(shape).timeline.cycles)
