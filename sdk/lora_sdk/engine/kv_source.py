"""Sources of the K and V of a sequence's first positions: prefixes that the boards have computed
before or compute now for another sequence, and what a request brings from another engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import LoraError
from lora_sdk.engine.handover import Handover
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_statistics import PrefixCounts
from lora_sdk.kv.kv_transfer import of_pages
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.kv.pages import PAGE_POSITIONS, pages_for
from lora_sdk.kv.prefix_index import page_digests, root_digest
from lora_sdk.prefill.job import Job, Part

if TYPE_CHECKING:
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.prefill.sender import Sender


@dataclass(frozen=True, eq=False)  # compared by identity
class NewSequence:
    """A sequence to be opened for `tokens`, whose rows use `adapter`.

    `pages`: those that it holds or reserves in total. `salt`: sequences with different ones share
    nothing. `recompute`: every token must be computed, because its row's results are wanted.
    `drafted`: its rows may have drafts.
    `kv`: of all tokens but the last, in the boards' column order, with the boards' own bytes; None
    if they are to be found or computed. `keep`: the bytes are others, so that a recovery must write
    them again. `prefill_id`: the name under which a worker by name has them. `note_prefill` is
    called with the mode of a worker once its K and V are those of the sequence, if they are not the
    boards' own."""

    tokens: Sequence[int]
    pages: int
    adapter: str | None = None
    salt: str | None = None
    recompute: bool = False
    drafted: bool = False
    kv: KvArrays | None = None
    keep: bool = False
    prefill_id: str | None = None
    note_prefill: Callable[[str], None] = lambda _: None


class KvSource(Protocol):
    """Opens sequences and fills in K and V. The generator computes the missing positions.

    Called between steps, under the generator's lock. A source that works in parallel with the steps
    returns None from `computed` until it is done."""

    def needs(self, new: NewSequence) -> int:
        """Free pages that `open` would reserve now."""

    def open(self, new: NewSequence) -> int:
        """Open the sequence. RequestError if its pages are not free."""

    def computed(self, sequence: int) -> int | None:
        """Committed positions of a sequence from `open`; None while they are still being fetched.
        Fewer than its tokens, unless `logits` has those of the last one. LoraError if fetching
        failed."""

    def logits(self, sequence: int) -> NDArray[np.float32] | None:
        """FP32 [vocabulary] of the last token of a sequence whose tokens are all committed, once;
        None for others."""


class OwnPrefill:
    """Fetches nothing: the boards compute the whole prompt."""

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    def needs(self, new: NewSequence) -> int:
        """See KvSource."""
        return new.pages

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        return self._cache.open(new.pages)

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        return self._cache.length(sequence)

    def logits(self, sequence: int) -> None:
        """See KvSource."""


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


PART_PAGES = 8  # written at once

_log = logging.getLogger("lora_sdk.engine")


@dataclass(frozen=True)
class MigratedKv:
    """What a request takes along. `kv`: of all its tokens but the last, in the boards' column order
    and with the boards' bytes; None if they must be computed again. `weights`: digest of the
    adapter that computed them."""

    kv: KvArrays | None
    weights: bytes | None


class MigratedKvSource:
    """A KvSource before another one, for sequences that bring K and V."""

    def __init__(
        self, inner: KvSource, cache: KvCache, transfer: KvTransfer, sender: Sender
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._transfer = transfer
        self._sender = sender
        self._handovers: dict[int, Handover] = {}

    def needs(self, new: NewSequence) -> int:
        """See KvSource."""
        return self._inner.needs(new) if new.kv is None else new.pages

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        if new.kv is None:
            sequence = self._inner.open(new)
            self._handovers.pop(sequence, None)  # of a sequence of this number that was closed
            return sequence
        sequence = self._cache.open(new.pages)
        self._cache.grow(sequence, new.kv.positions)
        wanted = partial(self._is_open, sequence, self._cache.identity(sequence))
        tokens = list(new.tokens[: new.kv.positions])
        job = Job(tokens, None, wanted, resumed=True, done=True)
        self._handovers[sequence] = Handover(
            job, sequence, self._cache, self._transfer, self._sender, keep=new.keep
        )
        for part in _parts(new.kv):
            job.give(part)
        return sequence

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        handover = self._handovers.get(sequence)
        if handover is None:
            return self._inner.computed(sequence)
        try:
            ended = handover.advance()
        except LoraError as error:  # of the boards: the next step shows it again
            _log.warning("K and V of a request that was moved: %s; they are computed again", error)
            ended = False
        if ended is None:
            return None
        del self._handovers[sequence]
        return len(handover.job.tokens) if ended else 0

    def logits(self, sequence: int) -> NDArray[np.float32] | None:
        """See KvSource."""
        return self._inner.logits(sequence)

    def _is_open(self, sequence: int, known: object) -> bool:
        return self._cache.identity(sequence) is known


def _parts(kv: KvArrays) -> list[Part]:
    starts = range(0, pages_for(kv.positions), PART_PAGES)
    return [Part(0, s * PAGE_POSITIONS, of_pages(kv, s, PART_PAGES)) for s in starts]
