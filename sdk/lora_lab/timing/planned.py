"""Modelled time of a placed model's tokens, for `lora plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.step import decode

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


def token_times(config: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    """Modelled milliseconds of one plain token early in the context and at its end."""
    timing = OverlayTiming(config, plan)
    found = []
    for context in sorted({min(128, plan.context), plan.context}):
        timeline = timing.step(decode(context)).timeline
        seconds = timing.machine.seconds(timeline.cycles)
        found.append(
            {
                "context": context,
                "modelled_ms_a_token": seconds * 1e3,
                "modelled_tokens_per_second": 1 / seconds,
                "left_out_ms": timing.left_out(decode(context)) * 1e3,
                "shares": {name: part / timeline.cycles for name, part in timeline.by.items()},
            }
        )
    return found


def token_lines(times: list[dict[str, Any]]) -> list[str]:
    """The times as text."""
    return [
        f"modelled with ideal units, not built: {entry['modelled_ms_a_token']:.3f} ms per token at "
        f"context {entry['context']} "
        f"({entry['modelled_tokens_per_second']:.1f} tokens/s): "
        + ", ".join(
            f"{name.replace('_', ' ')} {share:.0%}"
            for name, share in sorted(entry["shares"].items(), key=lambda pair: -pair[1])
            if share >= 0.005
        )
        + f"; without dispatch, host accesses and sums, {entry['left_out_ms']:.3f} ms more"
        for entry in times
    ]
