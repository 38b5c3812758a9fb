"""Sources of the K and V of a sequence's first positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lora_sdk.core.kvcache import KvCache


class KvSource(Protocol):
    """Opens sequences and fills in K and V. The generator computes the missing positions.

    Called between steps, under the generator's lock. A source that works in parallel with the steps
    returns None from `computed` until it is done."""

    def open(self, tokens: Sequence[int], adapter: str | None, pages: int) -> int:
        """A sequence for `tokens`, whose rows use `adapter`. It holds or reserves `pages` pages in
        total. RequestError if they are not free."""

    def computed(self, sequence: int) -> int | None:
        """Committed positions of a sequence from `open`, fewer than its tokens; None while they are
        still being fetched. LoraError if fetching failed."""


class OwnPrefill:
    """Fetches nothing: the boards compute the whole prompt."""

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    def open(self, tokens: Sequence[int], adapter: str | None, pages: int) -> int:
        """See KvSource."""
        return self._cache.open(pages)

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        return self._cache.length(sequence)
