"""Some cases of tests that have many slow ones: CI has no time for every combination of boards,
models and weights. A hash of its name chooses a case, so no parameter is left out as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from zlib import crc32

import pytest

MANY = 4


def thinned(items: Sequence[pytest.Item], step: int) -> set[pytest.Item]:
    """All items but, of a test with over `MANY` slow ones, only one of `step` in the mean, and one
    at least."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "slow" in item.keywords:
            tests[item.nodeid.partition("[")[0]].append(item)
    many = [cases for cases in tests.values() if len(cases) > MANY]
    dropped = {case for cases in many for case in cases if _place(case) % step}
    kept = {min(cases, key=_place) for cases in many if dropped.issuperset(cases)}
    return set(items) - (dropped - kept)


def _place(item: pytest.Item) -> int:
    return crc32(item.nodeid.encode())
