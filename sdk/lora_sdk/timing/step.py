"""The sizes of a step that time depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lora_host import abi


@dataclass(frozen=True)
class StepShape:
    """Rows of a step; `visible` is the sum over rows of the positions each sees, itself included;
    `kv_positions` the positions of K and V read from the cache, once a sequence; `sampled` the rows
    that go through lm_head; `committed` the positions that the step's header moves into the cache
    first (those of the step before); `adapted` rows name an adapter, `adapters` different ones."""

    rows: int
    visible: int
    kv_positions: int
    sampled: int
    committed: int = 0
    adapted: int = 0
    adapters: int = 0


def decode(context: int) -> StepShape:
    """One row that sees `context` positions, itself included, after a step of one row."""
    return StepShape(1, context, context, 1, 1)


def prefill(length: int, start: int = 0, committed: int = 0, last: bool = True) -> StepShape:
    """A chain of `length` rows after `start` positions, of which this step's header commits
    `committed`; its last row is sampled where it is the prompt's `last` one."""
    visible = length * start + length * (length + 1) // 2
    return StepShape(length, visible, start + length, int(last), committed)


def prefill_steps(length: int, row_limit: int) -> list[StepShape]:
    """A prompt cut as the engine cuts it: at most `row_limit` rows a step."""
    found = []
    for start in range(0, length, row_limit):
        count = min(row_limit, length - start)
        found.append(prefill(count, start, min(start, row_limit), start + count == length))
    return found


def verify(length: int, context: int) -> StepShape:
    """A tree of `length` rows over `context` positions, taken as if each row saw all of them."""
    return StepShape(length, length * context, context, length, 1)


def of_rows(rows: Iterable[tuple[int, int, int]], sampled: int, committed: int = 0) -> StepShape:
    """The shape of (sequence, position, adapter or -1) rows as the engine makes them."""
    longest: dict[int, int] = {}
    named: list[int] = []
    count = visible = 0
    for sequence, position, adapter in rows:
        count += 1
        if adapter >= 0:
            named.append(adapter)
        visible += position + 1
        longest[sequence] = max(longest.get(sequence, 0), position + 1)
    return StepShape(
        count, visible, sum(longest.values()), sampled, committed, len(named), len(set(named))
    )


def whole_tiles(positions: int) -> int:
    """Positions rounded up to whole KV blocks of 32."""
    tile = abi.TILE_POSITIONS
    return -(-positions // tile) * tile
