# SPDX-License-Identifier: Apache-2.0
"""A token of a whole model on one board, emulated or simulated, in a process of its own:

    python -m tests.rtl.whole_token FOLDER DEVICE CONTEXT LINE_RATE

prints, in JSON, the token, a digest of its logits' bytes, and cycles from doorbell to done of a
simulated card, whose memory answers after 31 cycles and whose banks give LINE_RATE lines a cycle,
beside those that the time model has."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lora_host import cluster, sim
from lora_host.overlay import load_overlay
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_time import CardTiming
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.step import runner as runner_of_core
from tests.drive import open_runner
from tests.rtl.card_cases import LATENCY, WIDE_LANES
from tests.rtl.card_steps import Step, Unsummed, card_step, run_step
from tests.rtl.step_cycles import Run, runs_of

OVERLAY = "lora_channels_u280"


def run(folder: Path, device: str, step: Step, rate: float) -> dict[str, Any]:
    """The step of the model in `folder` on `device`."""
    told: list[tuple[int, int, int, int]] = []
    bench = sim.Bench(latency=LATENCY, line_rate=rate, told=lambda *one: told.append(one))
    replaced: Any = cluster
    replaced.Cards = partial(sim.Cards, bench=bench)
    runner_of_core.Loader = Unsummed  # type: ignore[misc]
    overlay = load_overlay(OVERLAY)
    with open_runner(
        folder, 1, sequences=1, context=256, devices=[device], overlay=overlay,
        timeouts={"watchdog_ms": 4000, "step_us": 60_000_000},
    ) as runner:  # fmt: skip
        found = run_step(runner, step, logits=True)
        plan = runner.plan
    assert found.logits is not None and found.argmax is not None
    result: dict[str, Any] = {
        "token": int(found.argmax[1][0]),
        "logits": found.logits.size,
        "digest": hashlib.sha256(found.logits.tobytes()).hexdigest(),
    }
    if told:
        last: Run = runs_of(told)[0][-1]
        commands = lower(plan.config, plan, 0, unit_scales(plan.config))
        costs = replace(card_costs(), lanes=WIDE_LANES, line_rate=rate)
        modelled = CardTiming(plan, 0, commands, LATENCY, costs).step(card_step(step)).cycles
        result |= {"cycles": last.cycles, "modelled": round(modelled)}
        spent: dict[str, int] = {}
        for index, command in enumerate(commands):
            if index in last.ends:
                took = last.ends[index] - last.begins[index]
                spent[command.what] = spent.get(command.what, 0) + took
        result["commands"] = dict(sorted(spent.items(), key=lambda one: -one[1]))
    return result


if __name__ == "__main__":
    step = Step(int(sys.argv[3]), commits=1)
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2], step, float(sys.argv[4]))))
