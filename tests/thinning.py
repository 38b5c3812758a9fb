"""Some cases of tests that have many slow ones: CI has no time for every combination of boards,
models and weights. A hash of its name chooses a case, so no parameter is left out as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from zlib import crc32

import pytest

MANY = 10


def thinned(items: Sequence[pytest.Item], step: int) -> set[pytest.Item]:
    """All items but, of a test with over `MANY` slow ones, only one of `step` in the mean."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "slow" in item.keywords:
            tests[item.nodeid.partition("[")[0]].append(item)
    many = [cases for cases in tests.values() if len(cases) > MANY]
    dropped = {case for cases in many for case in cases if crc32(case.nodeid.encode()) % step}
    return set(items) - dropped
