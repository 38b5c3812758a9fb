"""Where the K and V of a sequence's first positions come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lora_sdk.core.kvcache import KvCache


class KvSource(Protocol):
    """Opens sequences and brings K and V into them; the generator computes what they lack.

    Called between steps, under the generator's lock. A source that works beside the steps returns
    None from `computed` until it is done."""

    def open(self, tokens: Sequence[int], adapter: str | None, pages: int) -> int:
        """A sequence for `tokens`, whose rows use `adapter`, with room for `pages` pages in all:
        those that it has and those reserved for it. RequestError where there is no room."""

    def computed(self, sequence: int) -> int | None:
        """Committed positions of a sequence that `open` returned, fewer than its tokens; None while
        they are on their way. LoraError where they are not going to come."""


class OwnPrefill:
    """Brings nothing: the boards compute the whole prompt."""

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    def open(self, tokens: Sequence[int], adapter: str | None, pages: int) -> int:
        """See KvSource."""
        return self._cache.open(pages)

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        return self._cache.length(sequence)
