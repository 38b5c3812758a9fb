"""K and V of prefixes that the boards have computed before, or compute now for another sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lora_sdk.engine.kv_source import NewSequence
from lora_sdk.kv.kv_statistics import PrefixCounts
from lora_sdk.kv.kvcache import PAGE_POSITIONS, KvCache
from lora_sdk.kv.prefix_index import page_digests, root_digest

ORIGIN = b"boards"  # K and V that the boards computed: they are equal to the bit


@dataclass(frozen=True, eq=False)  # compared by identity
class _Opened:
    new: NewSequence
    digests: list[bytes]  # the root, then those of the full pages of its tokens
    sequence: int
    token: object  # of the cache, for this use of the number


class PrefixSource:
    """A KvSource over the pages of one engine's KV cache.

    A sequence waits while another one computes the page that it needs next, so that requests that
    arrive together compute their common prefix once."""

    def __init__(
        self,
        cache: KvCache,
        kv_kind: str,
        adapter_digest: Callable[[str], bytes],
        least: float = 0.0,
        hidden_drafts: bool = False,
    ) -> None:
        """`adapter_digest`: digest of the weights of a loaded adapter, by its name. Pages that hold
        less than the part `least` of a sequence's tokens are not shared. `hidden_drafts`: drafts
        need the hidden states of every token."""
        self._least = least
        self._hidden_drafts = hidden_drafts
        self._cache = cache
        self._kind = kv_kind.encode()
        self._adapter_digest = adapter_digest
        self._opened: dict[int, _Opened] = {}
        self._computing: dict[bytes, _Opened] = {}  # page -> who computes it, or has
        self.counts = PrefixCounts()
        self._last: tuple[NewSequence, list[bytes]] | None = None

    def needs(self, new: NewSequence) -> int:
        """See KvSource. Pages that others use or compute now take none of the free ones."""
        if self._recomputed(new):
            return new.pages
        digests = self._digests(new)
        found = self._cache.prefixes.pages(digests, new.tokens)
        tile = len(found)
        while self._waits_for(new, digests, tile):
            tile += 1
        if not self._enough(new, tile):
            return new.pages
        return max(0, new.pages - self._cache.prefixes.referenced(found) - (tile - len(found)))

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        digests = self._digests(new)
        sequence = self._cache.open(self.needs(new), digests[0])
        before = self._opened.pop(sequence, None)
        if before is not None:
            self._forget(before)
        self._opened[sequence] = _Opened(new, digests, sequence, self._cache.identity(sequence))
        return sequence

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        opened = self._opened[sequence]
        new, digests, count = opened.new, opened.digests, 0
        if not self._recomputed(new):
            known = tile = len(self._cache.prefixes.pages(digests, new.tokens))
            while self._waits_for(new, digests, tile):
                tile += 1
            if tile > known and self._enough(new, tile):
                return None
            if self._enough(new, known):
                count = self._cache.adopt(sequence, digests, new.tokens)
            self._cache.limit_reserve(sequence, new.pages)
        self.counts.looked_up += len(new.tokens)
        self.counts.cached += count
        for digest in digests[1 + count // PAGE_POSITIONS :]:
            self._computing[digest] = opened
        return count

    def _recomputed(self, new: NewSequence) -> bool:
        """Whether every token's row must run. Its pages serve others all the same."""
        return new.recompute or (new.drafted and self._hidden_drafts)

    def _enough(self, new: NewSequence, tiles: int) -> bool:
        """Whether so many full pages are worth sharing."""
        return tiles * PAGE_POSITIONS >= self._least * len(new.tokens)

    def logits(self, sequence: int) -> None:
        """See KvSource."""

    def _digests(self, new: NewSequence) -> list[bytes]:
        adapter = b"" if new.adapter is None else self._adapter_digest(new.adapter)
        salt = b"" if new.salt is None else ascii(new.salt).encode()
        root = root_digest(ORIGIN, self._kind, adapter, salt)
        if self._last is None or self._last[0] is not new or self._last[1][0] != root:
            self._last = new, page_digests(root, new.tokens, PAGE_POSITIONS)
        return self._last[1]

    def _waits_for(self, new: NewSequence, digests: list[bytes], tile: int) -> bool:
        """Whether another sequence computes page `tile`, which `new` could then share."""
        if tile >= (len(new.tokens) - 1) // PAGE_POSITIONS:
            return False
        other = self._computing.get(digests[tile + 1])
        return (
            other is not None
            and other.new is not new
            and self._cache.identity(other.sequence) is other.token
            and self._cache.length(other.sequence) < (tile + 1) * PAGE_POSITIONS
        )

    def _forget(self, opened: _Opened) -> None:
        for digest in opened.digests[1:]:
            if self._computing.get(digest) is opened:
                del self._computing[digest]
