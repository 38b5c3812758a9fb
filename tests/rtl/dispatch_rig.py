"""What dispatch costs on the simulated control. `python -m tests.rtl.dispatch_rig 1 2 4` measures
rows of timing/data/sequencer.yaml, for 1, 2 and 4 boards; it needs `make rtl-build`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from tests.rtl.test_control import READ_CYCLES, RigCard
from tests.unit.test_timing_control import DURATIONS, Rig, llama_plan

LATENCIES = (READ_CYCLES, 2 * READ_CYCLES)  # cycles of a read of board memory


@dataclass(frozen=True)
class Dispatch:
    """Of one list with one latency. Cycles: `command` between two commands in the mean, `before`
    from the doorbell to the first, `step` besides a step's commands, `token` between two tokens."""

    commands: int
    command: float
    before: int
    step: int
    token: int


def llama(boards: int) -> Rig:
    """LLaMA2-7B's list, registered, with a sequence."""
    config, plan = llama_plan(boards)
    plan = replace(plan, row_limit=16)
    rig = Rig(plan, lower(config, plan, 0, unit_scales(config)), RigCard(0))
    rig.step(1)
    rig.step(1)
    return rig


def measure(rig: Rig, latency: int) -> Dispatch:
    """One row and one commit, and three tokens that boards choose."""
    rig.card.take_time(DURATIONS, latency)
    rig.step(1)
    rig.step(1)
    step = rig.card.measured()
    between = {}
    for tokens in (3, 2):
        rig.generate(tokens)
        between[tokens] = rig.card.measured().between
    return Dispatch(
        step.commands,
        step.between / (step.commands - 1),
        step.before,
        step.before + step.after,
        between[3] - between[2] - step.between,
    )


def _row(boards: int) -> str:
    rig = llama(boards)
    few, many = (measure(rig, latency) for latency in LATENCIES)
    rig.card.close()

    def parts(of: Callable[[Dispatch], int]) -> list[int]:
        reads = round((of(many) - of(few)) / (LATENCIES[1] - LATENCIES[0]))
        return [of(few) - reads * LATENCIES[0], reads]

    return (
        f"  - {{ boards: {boards}, commands: {few.commands}, command: {few.command:.2f}, "
        f"step: {parts(lambda found: found.step)}, token: {parts(lambda found: found.token)} }}"
    )


if __name__ == "__main__":
    for count in sys.argv[1:]:
        print(_row(int(count)), flush=True)
