# SPDX-License-Identifier: Apache-2.0
"""A token of a model on emulated boards, or on simulated cards, in a process of its own:

    python -m tests.rtl.whole_token FOLDER OVERLAY [--boards N] [--rows N] [--library FILE]

prints, in JSON, the tokens of the step's rows, a digest of their logits' bytes and, with the
library of simulated cards, cycles from doorbell to done of the slowest of them, all and by command,
where memory answers after 31 cycles, the on-chip buffer after 7, and banks give 0.75 of a line a
cycle. On one board those that
the time model has stand beside them."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lora_host import cluster, sim
from lora_host.overlay import load_overlay
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.source_target import LINE_RATE, ONCHIP
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.model_plan import Plan
from lora_sdk.step import runner as runner_of_core
from tests.drive import open_runner
from tests.rtl.card_cases import LATENCY, WIDE_LANES
from tests.rtl.card_steps import Step, Unsummed, card_step, chain, run_step
from tests.rtl.step_cycles import Run, runs_of

CONTEXT = 127  # positions before the rows


def step_of(rows: int) -> Step:
    """A row, or a draft's chain, behind CONTEXT positions, whose last ones the header commits: one,
    or two, as of two rows are accepted."""
    return Step(CONTEXT, chain(rows), sampled=rows, commits=min(rows, 2))


def run(
    folder: Path, overlay: str, boards: int = 1, rows: int = 1, library: Path | None = None
) -> dict[str, Any]:
    """The step of the model in `folder`, on emulated boards or on simulated cards."""
    told: list[tuple[int, int, int, int]] = []
    if library is not None:
        bench = sim.Bench(
            latency=LATENCY, onchip=ONCHIP, line_rate=LINE_RATE, told=lambda *one: told.append(one),
            library=sim.load(library),
        )  # fmt: skip
        replaced: Any = cluster
        replaced.Cards = partial(sim.Cards, bench=bench)
    runner_of_core.Loader = Unsummed  # type: ignore[misc]
    with open_runner(
        folder, boards, sequences=1, context=256, overlay=load_overlay(overlay),
        devices=["emu:u280" if library is None else "sim:u280"],
        timeouts={"watchdog_ms": 4000, "step_us": 60_000_000},
    ) as runner:  # fmt: skip
        found = run_step(runner, step_of(rows), logits=True)
        plan = runner.plan
    assert found.logits is not None and found.argmax is not None
    result: dict[str, Any] = {
        "tokens": found.argmax[1].tolist(),
        "logits": found.logits.size,
        "digest": hashlib.sha256(found.logits.tobytes()).hexdigest(),
    }
    if told:
        steps = [of_board[-1] for of_board in runs_of(told).values()]
        result |= _timed(plan, max(steps, key=lambda one: one.cycles), rows)
    return result


def _timed(plan: Plan, step: Run, rows: int) -> dict[str, Any]:
    """Cycles simulated and modelled, and simulated ones by command."""
    commands = lower(plan.config, plan, 0, unit_scales(plan.config))
    spent: Counter[str] = Counter()
    for index, command in enumerate(commands):
        if index in step.ends:
            spent[command.what] += step.ends[index] - step.begins[index]
    result: dict[str, Any] = {"cycles": step.cycles, "commands": dict(spent.most_common())}
    if plan.size == 1:
        costs = replace(card_costs(), lanes=WIDE_LANES, line_rate=LINE_RATE)
        timing = CardTiming(plan, 0, commands, LATENCY, costs, ONCHIP)
        modelled = timing.step(card_step(step_of(rows)))
        result["modelled"] = round(modelled.cycles)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("overlay")
    parser.add_argument("--boards", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--library", type=Path)
    print(json.dumps(run(**vars(parser.parse_args()))))
