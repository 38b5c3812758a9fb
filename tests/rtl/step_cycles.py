"""Cycles of steps on simulated cards, by command, beside the boards' lists."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lora_sdk.compile import isa
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.model.spec import ModelConfig
from lora_sdk.plan.model_plan import Plan
from tests.rtl.boards_build import in_process
from tests.rtl.card_build import narrow
from tests.rtl.card_steps import Request, one_by_one, opened, to_text

OPERATION = 0xFFFFFFFF  # LORA_SIM_OPERATION


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


def runs_of(told: Iterable[tuple[int, int, int, int]]) -> dict[int, list[Run]]:
    """Runs by board, in order, of what its card tells (struct lora_sim_config)."""
    found: dict[int, list[Run]] = {}
    for board, cycle, index, ends in told:
        runs = found.setdefault(board, [])
        if index != OPERATION:
            (runs[-1].ends if ends else runs[-1].begins)[index] = cycle
        elif ends:
            runs[-1].done = cycle
        else:
            runs.append(Run(cycle))
    return found


def measure(
    request: Request, latency: int, cards: Path | None = None, rate: float = 0.0
) -> Measured:
    """The request's steps where memory answers after `latency` cycles and a bank gives `rate` lines
    a cycle, 0: any. `cards`: the library of simulated cards, those of narrow arrays if None."""
    arguments = ["-m", "tests.rtl.card_steps_run", to_text(request), str(latency), str(rate)]
    done = in_process(arguments, "card", variables={"LORA_TEST_CARDS": str(cards or narrow())})
    assert done.returncode == 0, done.stderr
    by_board = runs_of(json.loads(done.stdout.splitlines()[-1]))
    with tempfile.TemporaryDirectory() as name, opened(request, Path(name)) as runner:
        config, plan = runner.plan.config, runner.plan
    scales = unit_scales(config)
    lists = [lower(config, plan, rank, scales) for rank in range(plan.size)]
    if request.alone:
        lists = [one_by_one(commands) for commands in lists]
    runs = [by_board[board][-2 * len(request.steps) :][1::2] for board in sorted(by_board)]
    return Measured(config, plan, tuple(lists), tuple(zip(*runs, strict=True)))
