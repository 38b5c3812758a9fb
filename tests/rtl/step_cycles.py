"""Cycles of steps on simulated cards, by command, beside the boards' lists."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lora_sdk.compile import isa
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.model.spec import ModelConfig
from lora_sdk.plan.model_plan import Plan
from tests.rtl.boards_build import in_process
from tests.rtl.card_steps import Request, one_by_one, opened, to_text


@dataclass
class Run:
    """A board's step: `doorbell` and `done`, and begin and end of each command by its number."""

    doorbell: int
    done: int = 0
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """From doorbell to done."""
        return self.done - self.doorbell


@dataclass(frozen=True)
class Measured:
    """A request's model, lists by rank, and each step's runs by rank."""

    config: ModelConfig
    plan: Plan
    lists: tuple[Sequence[isa.Command], ...]
    steps: tuple[tuple[Run, ...], ...]


def runs_of(text: str) -> dict[int, list[Run]]:
    """Runs by board, in order, of the lines that tests/rtl/core/times.hpp writes."""
    found: dict[int, list[Run]] = {}
    for line in text.splitlines():
        board, cycle, what, index = line.split()
        runs = found.setdefault(int(board), [])
        if what == "doorbell":
            runs.append(Run(int(cycle)))
        elif what == "done":
            runs[-1].done = int(cycle)
        else:
            (runs[-1].ends if what == "end" else runs[-1].begins)[int(index)] = int(cycle)
    return found


def measure(request: Request, latency: int, archive: Path | None = None) -> Measured:
    """The request's steps where memory answers after `latency` cycles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = folder / "times"
        asked = {"LORA_TEST_LATENCY": str(latency), "LORA_TEST_TIMES": str(times)}
        done = in_process(
            ["-m", "tests.rtl.card_steps_run", to_text(request)], "card", archive, asked
        )
        assert done.returncode == 0, done.stderr
        by_board = runs_of(times.read_text())
        with opened(request, folder) as runner:
            config, plan = runner.plan.config, runner.plan
    scales = unit_scales(config)
    lists = [lower(config, plan, rank, scales) for rank in range(plan.size)]
    if request.alone:
        lists = [one_by_one(commands) for commands in lists]
    runs = [by_board[board][-2 * len(request.steps) :][1::2] for board in sorted(by_board)]
    return Measured(config, plan, tuple(lists), tuple(zip(*runs, strict=True)))
