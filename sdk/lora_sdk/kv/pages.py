"""The pages of the KV cache, and the open sequences with the pages in their tables.

A page is referenced by sequences, cached for later ones, or free. One without references goes back
only after the step whose header released it, because a redone step reads it again. If its tokens
are known (lora_sdk.kv.prefix_index) it is cached: a sequence with the same prefix references it
again. Taking a page when none is free evicts the cached one that was released longest ago. Free
pages of the boards' fast banks are taken before the spilled ones. Another thread may write into a
sequence's pages while steps run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError, RowsLostError
from lora_sdk.kv.header_queue import HeaderQueue, KvOp
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.prefix_index import Entry, PrefixIndex
from lora_sdk.kv.uncommitted import Uncommitted

__all__ = [
    "PAGE_POSITIONS",
    "RETURNED",
    "KvSequence",
    "PagePool",
    "PageTables",
    "PendingWrite",
    "PendingWrites",
    "Uncommitted",
    "held",
    "pages_for",
]

PAGE_POSITIONS = 32
RETURNED = -1  # in place of a page that a sequence has given back


def pages_for(positions: int) -> int:
    """Pages needed for `positions` positions."""
    return -(-positions // PAGE_POSITIONS)


def held(pages: Sequence[int]) -> list[int]:
    """The pages without those that were given back."""
    return [page for page in pages if page != RETURNED]


@dataclass
class KvSequence:
    """What is known of an open sequence. The boards hold the bytes. `pages`: by tile; the first
    ones may be RETURNED."""

    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of the committed positions
    rows: dict[int, Uncommitted] = field(default_factory=dict)  # by slot
    reserved: int = 0  # pages set aside for this sequence, not yet taken
    vectors: dict[int, NDArray[np.float16]] = field(default_factory=dict)  # by position
    digests: list[bytes] | None = None  # the root and those of the full pages; None: never cached
    imported: KvArrays | None = None  # of the first positions: kept for a recovery
    lost: list[int] = field(default_factory=list)  # committed behind `tokens`; no board holds them
    gone: set[int] = field(default_factory=set)  # slots of rows that the boards have lost

    def lose(self) -> None:
        """The boards hold nothing of it any more."""
        self.lost, self.tokens = self.tokens + self.lost, []
        self.gone.update(self.rows)
        self.pages, self.reserved = [], 0
        self.rows.clear()
        if self.digests is not None:
            del self.digests[1:]

    def leave(self, window: int) -> list[int]:
        """Give back the pages that no later row sees if rows see `window` positions."""
        if self.imported is not None:  # these are written again as they came
            return []
        end = (len(self.tokens) + 1 - window) // PAGE_POSITIONS
        if end <= 0 or self.pages[end - 1] == RETURNED:
            return []
        left = held(self.pages[:end])
        self.pages[:end] = [RETURNED] * end
        return left

    def check_path(self, number: int, path: Sequence[int]) -> None:
        """RequestError if slots to commit are not a chain of rows from a root on. `number`: the
        sequence's own, for the message."""
        parent = -1
        for slot in path:
            if slot in self.gone:
                raise rows_lost(number)
            if slot not in self.rows:
                raise RequestError(f"slot {slot} holds no uncommitted row of sequence {number}")
            if self.rows[slot].parent != parent:
                raise RequestError(
                    f"slot {slot} of sequence {number} has parent {self.rows[slot].parent}; the "
                    f"path to commit has {parent} before it"
                )
            parent = slot


def rows_lost(sequence: int) -> RowsLostError:
    """What is raised for rows in slots that a recovery has emptied."""
    return RowsLostError(
        f"uncommitted rows of sequence {sequence} were lost when the boards were recovered; make "
        "and run them again"
    )


class PendingWrite(Protocol):
    """Writes K and V into the pages of an empty sequence."""

    def stop(self) -> None:
        """Return once nothing more is written: the pages may get other contents."""


class PendingWrites:
    """The fills of one KV cache, by sequence."""

    def __init__(self) -> None:
        self._fills: dict[int, PendingWrite] = {}

    def begin(self, sequence: int, fill: PendingWrite) -> None:
        """`fill` writes into the pages of `sequence` from now on."""
        self._fills[sequence] = fill

    def end(self, sequence: int) -> None:
        """All has been written."""
        self._fills.pop(sequence, None)

    def stop(self, sequence: int) -> None:
        """The sequence gives its pages back."""
        fill = self._fills.pop(sequence, None)
        if fill is not None:
            fill.stop()

    def stop_all(self) -> None:
        """The boards lose what they hold, or pages get other numbers."""
        for sequence in list(self._fills):
            self.stop(sequence)


class PagePool:
    """Pages `first` to `end` - 1. `queue` holds the pages that leave with the next header. Pages
    from `spilled` on lie in slower banks."""

    def __init__(self, first: int, end: int, queue: HeaderQueue, spilled: int) -> None:
        self._first = first
        self._queue = queue
        self.index = PrefixIndex()
        self.evictions = 0
        self.on_evict: Callable[[int, Entry], None] = lambda page, entry: None
        """Called before the content of a cached page changes."""
        self.clear(end, spilled)

    def clear(self, end: int | None = None, spilled: int | None = None) -> None:
        """Forget all content and references. None: as many pages as before."""
        if end is not None and spilled is not None:
            self._range, self.spilled = range(self._first, end), spilled
        self._references: dict[int, int] = {}
        self._near = deque(page for page in self._range if page < self.spilled)
        self._far = deque(page for page in self._range if page >= self.spilled)
        self._cached: dict[int, None] = {}  # without references, the one released first is first
        self.index.clear()

    def _free_with(self, page: int) -> deque[int]:
        """The free pages of the same banks."""
        return self._near if page < self.spilled else self._far

    @property
    def referenced(self) -> int:
        """Pages that sequences have."""
        return len(self._references)

    @property
    def total(self) -> int:
        """All pages."""
        return len(self._range)

    @property
    def free(self) -> int:
        """Pages that hold nothing of use."""
        return len(self._near) + len(self._far)

    @property
    def cached(self) -> int:
        """Pages without references that may be found again."""
        return len(self._cached)

    @property
    def available(self) -> int:
        """Pages that may be taken now."""
        return self.free + len(self._cached)

    def spilled_among(self, pages: Iterable[int]) -> int:
        """How many of these pages lie in the slower banks."""
        return sum(page >= self.spilled for page in pages) if self.spilled < self.end else 0

    @property
    def end(self) -> int:
        """One more than the last page."""
        return self._range.stop

    def is_referenced(self, page: int) -> bool:
        """Whether a sequence has the page."""
        return page in self._references

    def is_cached(self, page: int) -> bool:
        """Whether the page could be taken, and would then be evicted."""
        return page in self._cached

    def take(self) -> int:
        """A page for new content, with one reference. IndexError if none is available."""
        free = self._near or self._far
        if free:
            page = free.popleft()
        elif self._cached:
            page = next(iter(self._cached))
            self.on_evict(page, self.index.entry(page))
            del self._cached[page]
            self.index.remove(page)
            self.evictions += 1
        else:
            raise IndexError("no page is available")
        self._references[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more reference to a page that has some, is cached, or has just lost its last one."""
        if page in self._references:
            self._references[page] += 1
            return
        if page in self._cached:
            del self._cached[page]
        else:
            self._queue.leaving_pages.remove(page)
        self._references[page] = 1

    def release(self, page: int) -> None:
        """One reference less. A queued copy may still read the page."""
        self._references[page] -= 1
        if self._references[page] == 0:
            del self._references[page]
            self._queue.leaving_pages.append(page)

    def give_back(self, page: int) -> None:
        """Free a page that was taken and that no operation has written or reads."""
        del self._references[page]
        self._free_with(page).appendleft(page)

    def returned(self, pages: Iterable[int]) -> None:
        """The step whose header released these pages has completed. Those without content are taken
        first: the computer behind emulated boards has their memory already."""
        free: list[int] = []
        for page in pages:
            if page in self.index:
                self._cached[page] = None
            else:
                free.append(page)
        for page in reversed(free):
            self._free_with(page).appendleft(page)


class PageTables:
    """Sequences by number, with pages of `pool`. `queue` receives what the boards must know.

    `any_page`: a page of sequences, for tiles that no row reads."""

    def __init__(self, pool: PagePool, queue: HeaderQueue, any_page: int) -> None:
        self.sequences: dict[int, KvSequence] = {}
        self._pool = pool
        self._queue = queue
        self._any_page = any_page
        self._mapped: dict[tuple[int, int], int] = {}  # the boards' page of (sequence, tile)

    def clear(self) -> None:
        """Forget every sequence, and what the boards have mapped."""
        self.sequences.clear()
        self._mapped.clear()

    def get(self, number: int) -> KvSequence:
        """An open sequence. RequestError if it is not open."""
        try:
            return self.sequences[number]
        except KeyError:
            raise RequestError(
                f"sequence {number} is not open; open: {sorted(self.sequences) or 'none'}"
            ) from None

    @property
    def reserved(self) -> int:
        """Pages that sequences have reserved and not yet taken."""
        return sum(sequence.reserved for sequence in list(self.sequences.values()))

    @property
    def free_pages(self) -> int:
        """Pages that are neither in use nor reserved. Cached ones count: they are evicted."""
        return self._pool.available - self.reserved

    def exhausted(self) -> RequestError:
        """What is raised where no page is free."""
        return RequestError(
            f"KV pages are exhausted: {self._pool.total} of {PAGE_POSITIONS} positions are in use "
            "or reserved; release a sequence or plan for fewer or shorter ones"
        )

    def take(self, number: int) -> int:
        """A page out of the sequence's reservation, else a free one. RequestError if none is."""
        owner = self.sequences[number]
        if not self.can_take(number):
            raise self.exhausted()
        page = self._pool.take()
        owner.reserved = max(0, owner.reserved - 1)
        return page

    def can_take(self, number: int) -> bool:
        """Whether `take` has a page. Reserved ones may still be leaving."""
        free = self.sequences[number].reserved or self.free_pages > 0
        return bool(free and self._pool.available)

    def extend(self, number: int) -> int:
        """Map the sequence's next tile to a page of `take`."""
        page = self.take(number)
        self.append(number, page)
        return page

    def append(self, number: int, page: int) -> None:
        """Map the sequence's next tile to a page. The boards are told if theirs differs. They read
        nothing where a page was given back, but want a page of sequences there: any will do."""
        pages = self.sequences[number].pages
        at = (number, len(pages))
        pages.append(page)
        if page == RETURNED:
            page = self._mapped.get(at, self._any_page)
        if self._mapped.get(at) != page:
            self._mapped[at] = page
            self._queue.add(KvOp.table(*at, page))

    def replace(self, number: int, other: KvSequence) -> None:
        """Give a sequence the content of another one, whose pages are referenced already. Its rows
        are dropped."""
        owner = self.sequences[number]
        left, owner.pages = owner.pages, []
        owner.tokens, owner.digests = other.tokens, other.digests
        owner.vectors, owner.imported = other.vectors, other.imported
        owner.lost = other.lost
        for page in other.pages:
            self.append(number, page)
        for page in reversed(held(left)):
            self._pool.release(page)
        self._queue.add(KvOp.length(number, len(owner.tokens)))
        self._queue.leaving_slots.extend(owner.rows)
        owner.rows.clear()

    def forget_mapped(self) -> None:
        """The boards have no tables any more."""
        self._mapped.clear()
