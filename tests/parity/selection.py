"""Which variants every test run covers; the others run in CI."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from tests.variants import VARIANTS

# Each architecture, and each of: post-norm with projections, shared KV heads with biases, scaled
# rotary positions, shares that are empty on eight boards.
QUICK = ("gpt2", "opt_post_norm", "llama_gqa_bias", "llama_llama3", "llama_narrow")


def slow_unless_quick(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case of variant `name`."""
    return () if name in QUICK else (pytest.mark.slow,)


def every_variant(without: Collection[str] = ()) -> list[Any]:
    """Parameters for `which`: all variants but `without`, those that are not quick marked slow."""
    return [
        pytest.param(which, id=which.name, marks=slow_unless_quick(which.name))
        for which in VARIANTS
        if which.name not in without
    ]
