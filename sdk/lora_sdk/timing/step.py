"""The sizes of a step that determine its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lora_host import abi


@dataclass(frozen=True)
class StepShape:
    """The sizes of a step. `visible`: sum over rows of the positions that each attends to,
    including itself. `kv_positions`: positions of K and V read from the cache, once per sequence,
    or once per page where sequences share pages. `shared`: positions that are not read again for
    that reason; the firmware walks their tables all the same.
    `sampled`: rows that go through lm_head. `committed`: positions that the step's header first
    moves into the cache (from the previous step). `adapted`: rows with an adapter. `adapters`:
    distinct ones. `sequences`: those that the rows belong to. `spilled`: of `kv_positions`, those
    in pages outside the weight banks; None: as if the sequences alone had taken pages.
    `sampled_visible`: `visible` of the sampled rows, where these are not all; None: each attends to
    as many positions as a sequence has on average, as last rows of sequences of one length do."""

    rows: int
    visible: int
    kv_positions: int
    sampled: int
    committed: int = 0
    adapted: int = 0
    adapters: int = 0
    sequences: int = 1
    spilled: int | None = None
    shared: int = 0
    sampled_visible: int | None = None


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


def of_rows(
    rows: Iterable[tuple[int, int, int]],
    sampled: Sequence[int],
    committed: int = 0,
    spilled: Callable[[int], int] | None = None,
) -> StepShape:
    """The shape of a step with rows (sequence, position, adapter or -1). `sampled`: numbers of the
    sampled rows. `spilled`: positions of a sequence in pages outside the weight banks."""
    longest: dict[int, int] = {}
    named: list[int] = []
    seen: list[int] = []
    for sequence, position, adapter in rows:
        if adapter >= 0:
            named.append(adapter)
        seen.append(position + 1)
        longest[sequence] = max(longest.get(sequence, 0), position + 1)
    some = len(sampled) < len(seen)
    return StepShape(
        len(seen),
        sum(seen),
        sum(longest.values()),
        len(sampled),
        committed,
        len(named),
        len(set(named)),
        len(longest),
        None if spilled is None else sum(map(spilled, longest)),
        sampled_visible=sum(seen[number] for number in sampled) if some else None,
    )


def whole_tiles(positions: int) -> int:
    """Positions rounded up to whole KV blocks of 32."""
    tile = abi.TILE_POSITIONS
    return -(-positions // tile) * tile
