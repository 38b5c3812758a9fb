"""The pages of the KV cache: referenced by sequences, cached for later ones, or free.

A page without references goes back only after the step whose header released it, because a redone
step reads it again. If its tokens are known (lora_sdk.kv.prefix_index) it is cached: a sequence
with the same prefix references it again. Taking a page when none is free evicts the cached one that
was released longest ago. Free pages of the boards' fast banks are taken before the spilled ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from lora_sdk.kv.header_queue import HeaderQueue
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
