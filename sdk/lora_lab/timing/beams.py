"""Modelled throughput of beam search on a placed model (equation 4 of the segment KV paper)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lora_lab.timing.overlay_time import OverlayTiming
from lora_lab.timing.step import StepShape, beams, prefill_steps
from lora_sdk.plan.kv import tiles
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.segment_kv import beam_pages

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.plan.segment_kv import BeamLoad

LEFT_OUT = "without the host's choice of beams and the copies of last pages"


def beam_times(
    config: ModelConfig, plan: Plan, load: BeamLoad, batches: dict[str, int]
) -> dict[str, Any]:
    """Latency and tokens per second at the largest batch of each policy, and of `load` itself if
    its pages and sequences fit.

    A largest batch is cut to the overlay's sequences. The standard policy computes a prompt for
    each beam and reads it for each; the others compute it once and read its whole pages once.
    Pages that the weight banks have no room for are read at DDR's bandwidth.
    Empty if the model has fewer positions than prompt and response."""
    if load.prompt + load.response - 1 > config.positions or load.response < 1:
        return {}
    timing = OverlayTiming(config, _for_all_sequences(config, plan))
    room = plan.overlay.max_sequences // load.beams
    found: dict[str, Any] = {}
    fits = load.batch <= min(batches["pages"], room)
    for name, batch in {"requested": load.batch if fits else 0, **batches}.items():
        held = min(batch, room)
        if held:
            own = replace(load, batch=held)
            found[name] = _time(timing, own, own.beams if name == "standard" else 1)
    return found


def _for_all_sequences(config: ModelConfig, plan: Plan) -> Plan:
    """The plan with the pages of all sequences that the overlay has."""
    return make_plan(
        config,
        plan.overlay,
        plan.board,
        plan.size,
        plan.context,
        plan.overlay.max_sequences,
        plan.route,
        plan.hidden_taps,
        plan.adapters,
    )


def _time(timing: OverlayTiming, load: BeamLoad, prompts: int) -> dict[str, Any]:
    limit = timing.plan.row_limit
    first = (
        load.batch
        * prompts
        * sum(_seconds(timing, shape) for shape in prefill_steps(load.prompt, limit))
    )
    following = 0.0
    if load.response > 1:  # linear in the context but for whole tiles
        contexts = (load.prompt + 1, load.prompt + load.response - 1)
        ends = [_step(timing, load, context, prompts) for context in contexts]
        following = sum(ends) / 2 * (load.response - 1)
    return {
        "batch": load.batch,
        "modelled_first_token_s": first,
        "modelled_next_token_s": following / max(1, load.response - 1),
        "modelled_latency_s": first + following,
        "modelled_tokens_per_second": load.batch * load.response / (first + following),
    }


def _step(timing: OverlayTiming, load: BeamLoad, context: int, prompts: int) -> float:
    """Seconds of a token of every beam: as many steps as the overlay's rows need."""
    plan, held = timing.plan, load.batch * load.beams * tiles(context)
    if prompts == 1:  # of a beam's pages, the others share the prompt's
        held = beam_pages(replace(load, response=max(2, context - load.prompt + 1)))
    there = max(0, held - (plan.first_spilled - plan.scratch_pages)) / held
    common = load.prompt if prompts == 1 else 0
    total = 0.0
    for searches, width in _parts(load.batch, load.beams, timing.plan.row_limit):
        shape = beams(searches, width, context, common)
        total += _seconds(timing, replace(shape, spilled=round(shape.kv_positions * there)))
    return total


def _parts(batch: int, width: int, limit: int) -> Iterator[tuple[int, int]]:
    """The steps of a token: (searches, beams of each), whole searches where `limit` rows hold
    one."""
    if width <= limit:
        at_once = limit // width
        for start in range(0, batch, at_once):
            yield min(at_once, batch - start), width
        return
    for _ in range(batch):
        for start in range(0, width, limit):
            yield 1, min(limit, width - start)


def _seconds(timing: OverlayTiming, shape: StepShape) -> float:
    return timing.machine.seconds(timing.whole(shape).cycles)


def beam_time_lines(found: dict[str, Any]) -> list[str]:
    """The same as text."""
    return [
        f"  modelled, {name}: batch {one['batch']}: "
        f"{one['modelled_tokens_per_second']:.1f} tokens/s, first tokens after "
        f"{one['modelled_first_token_s']:.2f} s, then every "
        f"{one['modelled_next_token_s'] * 1e3:.1f} ms; {LEFT_OUT}"
        for name, one in found.items()
    ]
