"""How much of the weights boards may sum between steps.

A rule, not a model of time: a plain token takes at least as long as its weights need to leave the
banks at a line a cycle each, and as the busiest unit's commands need to start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi

if TYPE_CHECKING:
    from lora_sdk.compile.isa import Command
    from lora_sdk.plan.model_plan import Plan

WORD = 0xFFFFFFFF
START_CYCLES = 116  # of a unit, a command


@dataclass(frozen=True)
class SumFacts:
    """`share`: of plain tokens' time that sums may take. `slice_bytes`: summed by one command at
    most. `command_cycles`: of the control around one command, while no unit runs. `loop_tokens`:
    that boards choose by themselves before the host looks."""

    share: float = 0.01
    slice_bytes: int = 1 << 20
    command_cycles: int = 4900  # tests/unit/test_timing_control.py holds it on the committed image
    loop_tokens: int = 256


class SumPace:
    """The pace of a placed model's sums."""

    def __init__(
        self, plan: Plan, commands: Mapping[int, Sequence[Command]], facts: SumFacts | None = None
    ) -> None:
        """`commands`: the boards' lists by rank. `facts`: None for those above."""
        self.facts = facts or SumFacts()
        self.clock_hz = plan.overlay.clock_hz
        self.command_cycles = START_CYCLES + self.facts.command_cycles
        self.token_cycles = max(_streaming(plan), START_CYCLES * _most_commands(commands))
        """That a plain token takes at least."""

    def seconds(self, size: int, commands: int = 1) -> float:
        """Of `commands` that sum `size` bytes of a board: modelled. The DMA unit reads a line a
        cycle; no other unit runs meanwhile."""
        return (commands * self.command_cycles + size / abi.LINE_BYTES) / self.clock_hz

    def header(self) -> dict[str, int]:
        """Fields of struct lora_scrub: what a step, a millisecond without steps and a command
        are worth."""
        a_cycle = self.facts.share * abi.LINE_BYTES
        return {
            "slice_bytes": self.facts.slice_bytes,
            "step_bytes": min(WORD, int(a_cycle * self.token_cycles)),
            "idle_bytes": min(WORD, int(a_cycle * self.clock_hz * 1e-3)),
            "command_bytes": int(self.command_cycles * abi.LINE_BYTES),
        }


def _streaming(plan: Plan) -> float:
    """Cycles in which the fullest board's weights leave its banks."""
    most = max(
        sum(matrix.placed_bytes for matrix in board.matrices.values()) for board in plan.boards
    )
    return most / (len(plan.overlay.weight_banks) * abi.LINE_BYTES)


def _most_commands(commands: Mapping[int, Sequence[Command]]) -> int:
    """Of one unit, in any board's list."""
    return max(
        max(Counter(command.UNIT for command in listed).values()) for listed in commands.values()
    )
