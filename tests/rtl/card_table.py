"""Simulated and modelled cycles of the steps of card_cases.py. `python -m tests.rtl.card_table`
prints the table of docs/timing.md, of all cases or those named; the last ones of wide cards."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_time import CardTiming
from tests.rtl.card_build import wide
from tests.rtl.card_cases import CASES, LATENCY, WIDE, WIDE_LANES
from tests.rtl.card_steps import Request, Step, card_step
from tests.rtl.step_cycles import Measured, measure

HEAD = """\
| step | layers, width | heads, KV, columns | context | rows | simulated | modelled | error |
|---|---|---|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Compared:
    """A step's cycles from doorbell to done."""

    step: Step
    simulated: int
    modelled: float

    @property
    def error(self) -> float:
        """Of the model, relative."""
        return self.modelled / self.simulated - 1


def compared(
    request: Request, measured: Measured, lanes: int | None = None, floats: int | None = None
) -> Iterator[Compared]:
    """Each step of a measured request on one board. `lanes`: of the FP16 array, `floats`: attention
    units with lanes of FP16; those of the costs if None."""
    costs = card_costs()
    costs = replace(
        costs, lanes=lanes or costs.lanes, float_attentions=floats or costs.float_attentions
    )
    timing = CardTiming(measured.plan, 0, measured.lists[0], LATENCY, costs)
    for step, (run,) in zip(request.steps, measured.steps, strict=True):
        yield Compared(step, run.cycles, timing.step(card_step(step)).cycles)


def row(name: str, config: Mapping[str, Any], one: Compared) -> str:
    """One line of the table."""
    fields = (
        name, f"{_either(config, 'num_hidden_layers', 'n_layer')}, "
        f"{_either(config, 'hidden_size', 'n_embd')}", _heads(config), one.step.context,
        len(one.step.parents), f"{one.simulated:,}", f"{one.modelled:,.0f}", f"{one.error:+.1%}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, fields)) + " |"


def _either(config: Mapping[str, Any], first: str, other: str) -> int:
    found: int = config.get(first) or config[other]
    return found


def _heads(config: Mapping[str, Any]) -> str:
    heads = _either(config, "num_attention_heads", "n_head")
    width = config.get("head_dim") or _either(config, "hidden_size", "n_embd") // heads
    return f"{heads}, {config.get('num_key_value_heads', heads)}, {width}"


if __name__ == "__main__":
    print(HEAD)
    for case in sys.argv[1:] or (*CASES, *WIDE):
        request, lanes = (WIDE[case], WIDE_LANES) if case in WIDE else (CASES[case], None)
        cards = wide() if lanes else None
        for found in compared(request, measure(request, LATENCY, cards), lanes):
            print(row(case, request.config, found), flush=True)
