"""Begins sequences with cached pages, of the boards or of the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lora_sdk.kv.header_queue import HeaderQueue
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_op import KvOp
from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, KvSequence
from lora_sdk.kv.page_pool import PagePool
from lora_sdk.kv.page_tables import PageTables
from lora_sdk.kv.prefix_cache import PrefixCache, tile_of

AT_ONCE = 64  # pages in memory while they are written back


class PrefixHits:
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
        pages = self._pinned(owner, self._prefixes.pages(digests, tokens))
        found: list[int] = []
        for on_host, group in groupby(range(len(pages)), lambda tile: pages[tile] is None):
            tiles = list(group)
            if not on_host:
                found += [page for page in pages[tiles[0] : tiles[-1] + 1] if page is not None]
                continue
            restored = self._restored(sequence, digests, tokens, tiles)
            found += restored
            if len(restored) < len(tiles):
                self._unpin(owner, pages[tiles[-1] + 1 :])
                break
        for page in found:
            self._tables.append(sequence, page)
        owner.digests = list(digests[: len(found) + 1])
        owner.tokens = list(tokens[: len(found) * PAGE_POSITIONS])
        self._adopt_partial(sequence, owner, tokens)
        if owner.tokens:
            self._queue.add(KvOp.length(sequence, len(owner.tokens)))
        return len(owner.tokens)

    def _pinned(self, owner: KvSequence, pages: Sequence[int | None]) -> Sequence[int | None]:
        """Share the pages that the boards have, before others are taken: up to the first that is
        not free. Those of the host stay None."""
        for tile, page in enumerate(pages):
            if page is None:
                continue
            if not self._pool.is_referenced(page):
                if owner.reserved:
                    owner.reserved -= 1
                elif self._tables.free_pages <= 0:
                    return pages[:tile]
            self._pool.share(page)
        return pages

    def _unpin(self, owner: KvSequence, pages: Sequence[int | None]) -> None:
        """Give pages back that `_pinned` has shared; rows will need as many."""
        for page in pages:
            if page is not None:
                self._pool.release(page)
                owner.reserved += not self._pool.is_referenced(page)

    def _restored(
        self,
        sequence: int,
        digests: Sequence[bytes],
        tokens: Sequence[int],
        tiles: Sequence[int],
    ) -> list[int]:
        """Pages with the host's K and V of these tiles, up to the first that cannot be had."""
        restored: list[int] = []
        for start in range(0, len(tiles), AT_ONCE):
            some = tiles[start : start + AT_ONCE]
            pages = self._written(sequence, self._loaded(digests, tokens, some))
            for tile, page in zip(some, pages, strict=False):
                here = tile_of(tokens, tile)
                self._pool.index.add(page, digests[tile], here, digests[tile + 1])
            restored += pages
            if len(pages) < len(some):
                break
        return restored

    def _loaded(
        self, digests: Sequence[bytes], tokens: Sequence[int], tiles: Sequence[int]
    ) -> list[KvArrays]:
        assert self._prefixes.offload is not None  # it has these tiles
        loaded: list[KvArrays] = []
        for tile in tiles:
            here = tile_of(tokens, tile)
            kv = self._prefixes.offload.load(digests[tile], here, digests[tile + 1])
            if kv is None:
                break
            loaded.append(kv)
        return loaded

    def _written(self, sequence: int, each: list[KvArrays]) -> list[int]:
        """Pages of the sequence, not mapped yet, that hold these; fewer if no more are free, none
        if they could not be written."""
        assert self._prefixes.offload is not None
        owner = self._tables.get(sequence)
        reserved = owner.reserved
        pages: list[int] = []
        while len(pages) < len(each) and self._tables.can_take(sequence):
            pages.append(self._tables.take(sequence))
        if pages and not self._prefixes.offload.place(pages, each[: len(pages)]):
            for page in pages:
                self._pool.give_back(page)
            owner.reserved = reserved
            return []
        return pages

    def _adopt_partial(self, sequence: int, owner: KvSequence, tokens: Sequence[int]) -> None:
        """Copy the positions of a cached page that continues the shared ones."""
        start = len(owner.tokens)
        if self._restore_partial(sequence, owner, tokens):
            return
        source, count = self._prefixes.partial(owner, tokens)
        spare = self._tables.free_pages - self._pool.is_cached(source)  # leaves until the next step
        if not count or spare < (0 if owner.reserved else 1):
            return
        self._pool.share(source)  # not to be evicted for its copy
        page = self._tables.extend(sequence)
        self._pool.release(source)
        self._queue.add(KvOp.copy(source, page, count))
        owner.tokens.extend(tokens[start : start + count])

    def _restore_partial(self, sequence: int, owner: KvSequence, tokens: Sequence[int]) -> bool:
        """The same with a page of the host, if it begins with more of the tokens."""
        offload = self._prefixes.offload
        if offload is None or owner.digests is None:
            return False
        before, start = owner.digests[-1], len(owner.tokens)
        following = tokens[start : min(start + PAGE_POSITIONS, len(tokens) - 1)]
        count = offload.longest(before, following)
        if count <= self._prefixes.partial(owner, tokens)[1]:
            return False
        kv = offload.load_longest(before, following)
        pages = [] if kv is None else self._written(sequence, [kv])
        if not pages:
            return False
        self._tables.append(sequence, pages[0])
        owner.tokens.extend(following[:count])
        return True
