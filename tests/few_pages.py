"""An engine whose boards have room for few pages of KV."""

from __future__ import annotations

from collections import deque

from lora_sdk import Engine


def few_pages(engine: Engine, pages: int) -> None:
    """Leave the first `pages` pages of an engine that has run nothing."""
    pool = engine._cache._pool
    pool._near, pool._far = deque(list(pool._near)[:pages]), deque()
    pool._range = range(pool._range.start, pool._range.start + pages)
