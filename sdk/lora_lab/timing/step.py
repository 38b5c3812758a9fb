"""Steps by their sizes."""

from __future__ import annotations

import math
from dataclasses import replace

from lora_host import abi
from lora_sdk.step.step_shape import StepShape, of_rows

__all__ = [
    "StepShape",
    "beams",
    "decode",
    "of_rows",
    "prefill",
    "prefill_steps",
    "sampled_rows",
    "verify",
    "whole_tiles",
    "windowed",
]


def sampled_rows(step: StepShape) -> StepShape:
    """The sampled rows of `step` alone. All sequences are read, if there are any such rows."""
    if step.sampled >= step.rows:
        return step
    visible, there = step.sampled_visible, step.sampled > 0
    if visible is None:
        each = (step.kv_positions + step.shared) / max(1, step.sequences)
        visible = math.ceil(step.sampled * each)
    return replace(
        step,
        rows=step.sampled,
        visible=min(step.visible, visible),
        kv_positions=step.kv_positions * there,
        adapted=min(step.adapted, step.sampled),
        adapters=min(step.adapters, step.sampled),
        spilled=step.spilled if there else 0,
        shared=step.shared * there,
    )


def windowed(step: StepShape, window: int) -> StepShape:
    """`step` for attention in a layer whose rows see `window` positions, 0 for all. At most: rows
    of one sequence are counted as if each began at the window's end, and whole tiles are read."""
    if not window:
        return step
    tile = abi.TILE_POSITIONS
    read = min(step.kv_positions, step.sequences * (window + tile) + step.rows)
    seen = step.sampled_visible
    return replace(
        step,
        visible=min(step.visible, step.rows * window),
        kv_positions=read,
        sampled_visible=seen and min(seen, step.sampled * window),
    )


def decode(context: int) -> StepShape:
    """One row that attends to `context` positions, including itself, after a step of one row."""
    return StepShape(1, context, context, 1, 1)


def prefill(length: int, start: int = 0, committed: int = 0, last: bool = True) -> StepShape:
    """A chain of `length` rows after `start` positions. The step's header commits `committed` of
    these. With `last`, the last row ends the prompt and is sampled."""
    visible, end = length * start + length * (length + 1) // 2, start + length
    seen = None if last and length == 1 else end * last
    return StepShape(length, visible, end, int(last), committed, sampled_visible=seen)


def prefill_steps(length: int, row_limit: int) -> list[StepShape]:
    """A prompt split as by the engine: at most `row_limit` rows per step."""
    found = []
    for start in range(0, length, row_limit):
        count = min(row_limit, length - start)
        found.append(prefill(count, start, min(start, row_limit), start + count == length))
    return found


def verify(length: int, context: int, committed: int = 1) -> StepShape:
    """A tree of `length` rows over `context` positions, as if each row attended to all of them.
    `committed`: rows of the step before that were accepted."""
    return StepShape(length, length * context, context, length, committed)


def beams(prompts: int, width: int, context: int, common: int) -> StepShape:
    """A token of `width` beams of each of `prompts` prompts. Beams share the whole pages of their
    first `common` positions (0: none), which attention reads once for all of them."""
    rows, pages = prompts * width, common // abi.TILE_POSITIONS * abi.TILE_POSITIONS
    spared = prompts * (width - 1) * min(pages, context - 1)
    read = rows * context - spared
    return StepShape(rows, rows * context, read, rows, rows, sequences=rows, shared=spared)


def whole_tiles(positions: int) -> int:
    """Positions rounded up to whole KV blocks of 32."""
    tile = abi.TILE_POSITIONS
    return -(-positions // tile) * tile
