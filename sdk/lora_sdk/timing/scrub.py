"""What the scrubber costs on boards: `data/scrub.yaml` (docs/timing.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.timing.facts import board_facts
from lora_sdk.timing.host_access import runtime, step_accesses
from lora_sdk.timing.machine import machine_of_overlay
from lora_sdk.timing.scrub_facts import ScrubFacts, scrub_facts
from lora_sdk.timing.step import decode

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

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
        one, count = runtime(board_facts(plan.overlay.board.name).runtime), self.facts.accesses
        self._host = 1e-6 * (
            count["register_reads"] * one.register_read_us
            + count["register_writes"] * one.register_write_us
            + count["dma"] * one.dma_us
            + step_accesses().poll_us / 2
        )

    def seconds(self, size: int) -> float:
        """Of one operation that sums `size` bytes of a board, the host's accesses included. The DMA
        unit reads a line a cycle; no other unit runs meanwhile."""
        cycles = self._machine.start_cycles + size / abi.LINE_BYTES
        return self._host + self._machine.seconds(cycles)

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
