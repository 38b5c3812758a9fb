"""Tokens of a step that are plain draws, in one call."""

from __future__ import annotations

from collections.abc import Sequence

from lora_host.logits import Draw, draw_tokens
from lora_sdk.engine.scheduler import ScheduledChunk
from lora_sdk.step.step import Row, StepResult


def plain_draws(
    slices: Sequence[ScheduledChunk],
    result: StepResult,
    rows: Sequence[Row],
    parts: Sequence[range],
) -> dict[int, int]:
    """Tokens behind rows of a step, by row, where the request asks for a draw from filtered logits
    and no more (Sampler.filters). Rows whose logits allow none are left out.

    `parts`: each slice's rows."""
    draws: list[Draw] = []
    found: list[int] = []
    for chunk, part in zip(slices, parts, strict=True):
        track = chunk.track
        sample, sampler = track.sample, track.sample.sampler
        if sampler.filters is None or not chunk.complete or chunk.tree is not None:
            continue
        if track.siblings or track.beams is not None or track.request.pool is not None:
            continue
        if len(sample.output) < sampler.params.min_tokens:
            continue
        last = part[-1]
        found.append(last)
        position = rows[last].position + 1
        selected = result.rows.index(last)
        draws.append((selected, sampler.filters, sampler.seed, sampler.sample, position))
    if not draws or result.logits is None:
        return {}
    tokens = draw_tokens(result.logits, draws)
    return {row: token for row, token in zip(found, tokens, strict=True) if token >= 0}
