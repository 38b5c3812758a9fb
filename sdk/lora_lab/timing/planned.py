"""Modelled time of a placed model's tokens, for `lora plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.report import shares_text
from lora_lab.timing.step import decode

UNITS = "  ideal: of the overlay's size; dispatch is the firmware's"

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


def token_times(config: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    """Modelled milliseconds of one plain token early in the context and at its end, with dispatch,
    host accesses and sums of weights; `units_ms` without them."""
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


def token_lines(times: list[dict[str, Any]]) -> list[str]:
    """The times as text."""
    lines = []
    for entry in times:
        lines += [
            f"modelled, ideal units not built: {entry['modelled_ms_a_token']:.3f} ms per token at "
            f"context {entry['context']}, {entry['modelled_tokens_per_second']:.1f} tokens/s, "
            "everything counted",
            f"  {shares_text(entry['shares'], 1.0)}",
        ]
    return [*lines, UNITS]
