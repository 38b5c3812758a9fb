"""Sums along K: eight fixed segments, added in a fixed tree
(docs/numbers.md, 2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lora_host import abi

F32 = NDArray[np.float32]


@cache
def segment_bounds(columns: int) -> tuple[tuple[int, int], ...]:
    """(first, end) column of each of the eight segments of a sum over `columns`, some empty."""
    unit, segments = abi.UNIT_COLUMNS, abi.SEGMENTS
    units = -(-columns // unit)
    ends = [min(columns, s * units // segments * unit) for s in range(segments + 1)]
    return tuple((ends[s], ends[s + 1]) for s in range(segments))


def tree_sum(parts: Sequence[F32 | None]) -> F32:
    """((0+1)+(2+3))+((4+5)+(6+7)); None is an empty segment.

    An empty segment's sum is +0 and no segment's sum is -0, so skipping it changes no bit.
    """
    level = list(parts)
    while len(level) > 1:
        level = [_add(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    if level[0] is None:
        raise ValueError("tree_sum: every segment is empty")
    return level[0]


def _add(a: F32 | None, b: F32 | None) -> F32 | None:
    if a is None or b is None:
        return b if a is None else a
    total: F32 = a + b
    return total
