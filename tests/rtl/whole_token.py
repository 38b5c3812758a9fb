# SPDX-License-Identifier: Apache-2.0
"""A token of a whole model on one board, emulated or simulated, in a process of its own:

    python -m tests.rtl.whole_token FOLDER [LIBRARY]

prints, in JSON, the token, a digest of its logits' bytes and, with the library of simulated cards,
cycles from doorbell to done of one whose memory answers after 31 cycles and whose banks give 0.75
of a line a cycle, all and by command, beside those that the time model has."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lora_host import cluster, sim
from lora_host.overlay import load_overlay
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.source_target import LINE_RATE
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.model_plan import Plan
from lora_sdk.step import runner as runner_of_core
from tests.drive import open_runner
from tests.rtl.card_cases import LATENCY, WIDE_LANES
from tests.rtl.card_steps import Step, Unsummed, card_step, run_step
from tests.rtl.step_cycles import Run, runs_of

OVERLAY = "lora_channels_u280"
CHANNELS = 32
STEP = Step(127, commits=1)


def run(folder: Path, library: Path | None = None) -> dict[str, Any]:
    """STEP of the model in `folder`, on an emulated board or on a simulated card."""
    told: list[tuple[int, int, int, int]] = []
    if library is not None:
        bench = sim.Bench(
            latency=LATENCY, line_rate=LINE_RATE, told=lambda *one: told.append(one),
            library=sim.load(library, CHANNELS),
        )  # fmt: skip
        replaced: Any = cluster
        replaced.Cards = partial(sim.Cards, bench=bench)
    runner_of_core.Loader = Unsummed  # type: ignore[misc]
    with open_runner(
        folder, 1, sequences=1, context=256, overlay=load_overlay(OVERLAY),
        devices=["emu:u280" if library is None else "sim:u280"],
        timeouts={"watchdog_ms": 4000, "step_us": 60_000_000},
    ) as runner:  # fmt: skip
        found = run_step(runner, STEP, logits=True)
        plan = runner.plan
    assert found.logits is not None and found.argmax is not None
    result: dict[str, Any] = {
        "token": int(found.argmax[1][0]),
        "logits": found.logits.size,
        "digest": hashlib.sha256(found.logits.tobytes()).hexdigest(),
    }
    return result | (_timed(plan, next(iter(runs_of(told).values()))[-1]) if told else {})


def _timed(plan: Plan, step: Run) -> dict[str, Any]:
    """Cycles simulated and modelled, and simulated ones by command."""
    commands = lower(plan.config, plan, 0, unit_scales(plan.config))
    costs = replace(card_costs(), lanes=WIDE_LANES, line_rate=LINE_RATE)
    modelled = CardTiming(plan, 0, commands, LATENCY, costs).step(card_step(STEP))
    spent: Counter[str] = Counter()
    for index, command in enumerate(commands):
        if index in step.ends:
            spent[command.what] += step.ends[index] - step.begins[index]
    return {
        "cycles": step.cycles,
        "modelled": round(modelled.cycles),
        "commands": dict(spent.most_common()),
    }


if __name__ == "__main__":
    print(json.dumps(run(*map(Path, sys.argv[1:]))))
