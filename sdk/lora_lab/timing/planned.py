"""Modelled time of a placed model's tokens, for `lora plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lora_lab.timing.card_step import card_step_of
from lora_lab.timing.ops import DISPATCH
from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.report import shares_text
from lora_lab.timing.source_target import LINE_RATE, source_card
from lora_lab.timing.step import decode
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales

UNITS = "  ideal: of the overlay's size; dispatch is the firmware's"
SEQUENCER = (
    "  most of it is that dispatch; with control in hardware: lora lab model --design own-u280 or "
    "own-v80"
)
SIMULATED = (
    f"  by cycles of the source's units in simulation, banks of {LINE_RATE:g} of a line a cycle, "
    "without host accesses and checksums of weights; no card has run it"
)

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


def token_times(config: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    """Modelled milliseconds of one plain token early in the context and at its end, with dispatch,
    host accesses and sums of weights; `units_ms` without them. Of one board whose overlay places
    columns: by the units of the hardware source, without host accesses and sums."""
    if plan.overlay.channels and plan.size == 1:
        return _of_source(config, plan)
    timing = OverlayTiming(config, plan)
    found = []
    for context in sorted({min(128, plan.context), plan.context}):
        timeline = timing.whole(decode(context))
        units = timing.step(decode(context)).timeline.cycles
        seconds = timing.machine.seconds(timeline.cycles)
        found.append(
            {
                "context": context,
                "modelled_ms_a_token": seconds * 1e3,
                "modelled_tokens_per_second": 1 / seconds,
                "units_ms": timing.machine.seconds(units) * 1e3,
                "shares": {name: part / timeline.cycles for name, part in timeline.by.items()},
            }
        )
    return found


def _of_source(config: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    clock = float(plan.overlay.clock_hz)
    card = source_card(plan, 0, lower(config, plan, 0, unit_scales(config)))
    found = []
    for context in sorted({min(128, plan.context), plan.context}):
        step = card_step_of(decode(context))
        time = card.step(step)
        by = time.timeline.by | {DISPATCH: card.besides(step)}
        found.append(
            {
                "context": context,
                "modelled_ms_a_token": time.cycles / clock * 1e3,
                "modelled_tokens_per_second": clock / time.cycles,
                "units_ms": time.timeline.cycles / clock * 1e3,
                "shares": {name: part / time.cycles for name, part in by.items()},
                "units": "simulated",
            }
        )
    return found


def token_lines(times: list[dict[str, Any]]) -> list[str]:
    """The times as text."""
    lines = []
    simulated = any(entry.get("units") == "simulated" for entry in times)
    units = "units as simulated" if simulated else "ideal units not built"
    counted = "" if simulated else ", everything counted"
    for entry in times:
        lines += [
            f"modelled, {units}: {entry['modelled_ms_a_token']:.3f} ms per token at "
            f"context {entry['context']}, {entry['modelled_tokens_per_second']:.1f} tokens/s"
            f"{counted}",
            f"  {shares_text(entry['shares'], 1.0)}",
        ]
    mostly = any(entry["shares"].get(DISPATCH, 0.0) > 0.5 for entry in times)
    return [*lines, SIMULATED if simulated else UNITS, *[SEQUENCER] * mostly]
