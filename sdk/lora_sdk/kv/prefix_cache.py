"""Keeps full and last pages of sequences for later sequences with the same prefix."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.kv.kv_offload import KvOffload
from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, RETURNED, KvSequence
from lora_sdk.kv.page_pool import PagePool
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
