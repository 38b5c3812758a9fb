"""Begins sequences with cached pages."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.core.header_queue import HeaderQueue
from lora_sdk.core.kv_sequence import PAGE_POSITIONS, KvSequence
from lora_sdk.core.page_pool import PagePool
from lora_sdk.core.page_tables import PageTables
from lora_sdk.core.prefix_cache import PrefixCache
from lora_sdk.core.step import KvOp


class Adoption:
    """Gives cached pages of `pool` to sequences of `tables`."""

    def __init__(
        self, tables: PageTables, pool: PagePool, queue: HeaderQueue, prefixes: PrefixCache
    ) -> None:
        self._tables = tables
        self._pool = pool
        self._queue = queue
        self._prefixes = prefixes

    def adopt(self, sequence: int, digests: Sequence[bytes], tokens: Sequence[int]) -> int:
        """See KvCache.adopt."""
        owner = self._tables.get(sequence)
        for page in self._prefixes.pages(digests, tokens):
            if not self._pool.is_referenced(page):
                if owner.reserved:
                    owner.reserved -= 1
                elif self._tables.free_pages <= 0:
                    break
            self._pool.share(page)
            self._tables.append(sequence, page)
        count = len(owner.pages)
        owner.digests = list(digests[: count + 1])
        owner.tokens = list(tokens[: count * PAGE_POSITIONS])
        self._adopt_partial(sequence, owner, tokens)
        if owner.tokens:
            self._queue.add(KvOp.length(sequence, len(owner.tokens)))
        return len(owner.tokens)

    def _adopt_partial(self, sequence: int, owner: KvSequence, tokens: Sequence[int]) -> None:
        """Copy the positions of a cached page that continues the shared ones."""
        start = len(owner.tokens)
        source, count = self._prefixes.partial(owner, tokens)
        spare = self._tables.free_pages - self._pool.is_cached(source)  # leaves until the next step
        if not count or spare < (0 if owner.reserved else 1):
            return
        self._pool.share(source)  # not to be evicted for its copy
        page = self._tables.extend(sequence)
        self._pool.release(source)
        self._queue.add(KvOp.copy(source, page, count))
        owner.tokens.extend(tokens[start : start + count])
