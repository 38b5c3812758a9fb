"""Keeps pages of sequences, and begins later sequences of the same prefix with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lora_sdk.kv.header_queue import HeaderQueue, KvOp
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_offload import KvOffload
from lora_sdk.kv.pages import PAGE_POSITIONS, RETURNED, KvSequence, PagePool, PageTables
from lora_sdk.kv.prefix_index import page_digest


class PrefixCache:
    """The tokens of a pool's pages. Lists of digests begin with a root; those of the full pages of
    a prefix follow (lora_sdk.kv.prefix_index)."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.offload: KvOffload | None = None

    def pages(self, digests: Sequence[bytes], tokens: Sequence[int]) -> list[int | None]:
        """Full pages with the K and V of a prefix of `tokens`, without the last token; None for
        those that only the host has."""
        pages: list[int | None] = []
        for tile in range(min(len(digests) - 1, (len(tokens) - 1) // PAGE_POSITIONS)):
            here = tile_of(tokens, tile)
            page = self._pool.index.find(digests[tile + 1], digests[tile], here)
            if page is None and not self._on_host(digests, tokens, tile):
                break
            pages.append(page)
        return pages

    def _on_host(self, digests: Sequence[bytes], tokens: Sequence[int], tile: int) -> bool:
        here = tile_of(tokens, tile)
        return self.offload is not None and self.offload.has(digests[tile], here, digests[tile + 1])

    def referenced(self, pages: Sequence[int | None]) -> int:
        """How many of the pages are in use: to share them takes no free page."""
        return sum(page is not None and self._pool.is_referenced(page) for page in pages)

    def partial(self, owner: KvSequence, tokens: Sequence[int]) -> tuple[int, int]:
        """A page that continues the sequence's full ones, and how many of the next `tokens` it
        begins with, the last token excluded; (-1, 0) for none."""
        if owner.digests is None:
            return -1, 0
        start = len(owner.tokens)
        end = min(start + PAGE_POSITIONS, len(tokens) - 1)
        return self._pool.index.longest(owner.digests[-1], tokens[start:end])

    def note(self, owner: KvSequence) -> None:
        """Make the pages that are full now known to later sequences."""
        if owner.digests is None:
            return
        for tile in range(len(owner.digests) - 1, len(owner.tokens) // PAGE_POSITIONS):
            tokens, before = tile_of(owner.tokens, tile), owner.digests[-1]
            owner.digests.append(page_digest(before, tokens))
            if owner.pages[tile] != RETURNED:
                self._pool.index.add(owner.pages[tile], before, tokens, owner.digests[-1])

    def note_partial(self, owner: KvSequence) -> None:
        """Make the last, partial page of a sequence that ends known to later ones."""
        full = len(owner.tokens) // PAGE_POSITIONS
        tokens = tile_of(owner.tokens, full)
        if owner.digests is not None and tokens:
            self._pool.index.add_partial(owner.pages[full], owner.digests[-1], tokens)


def tile_of(tokens: Sequence[int], tile: int) -> Sequence[int]:
    """The tokens of a page."""
    return tokens[tile * PAGE_POSITIONS : (tile + 1) * PAGE_POSITIONS]


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
