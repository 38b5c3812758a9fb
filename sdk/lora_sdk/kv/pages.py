"""The pages of the KV cache, and the open sequences with the pages in their tables.

A page is referenced by sequences, cached for later ones, or free. One without references goes back
only after the step whose header released it, because a redone step reads it again. If its tokens
are known (lora_sdk.kv.prefix_index) it is cached: a sequence with the same prefix references it
again. Taking a page when none is free evicts the cached one that was released longest ago. Free
pages of the boards' fast banks are taken before the spilled ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from lora_host.errors import RequestError
from lora_sdk.kv.header_queue import HeaderQueue, KvOp
from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, RETURNED, KvSequence, held
from lora_sdk.kv.prefix_index import Entry, PrefixIndex


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
