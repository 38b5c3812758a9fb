"""The open sequences of the KV cache and the pages in their tables."""

from __future__ import annotations

from lora_host.errors import RequestError
from lora_sdk.kv.header_queue import HeaderQueue
from lora_sdk.kv.kv_op import KvOp
from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, RETURNED, KvSequence, held
from lora_sdk.kv.page_pool import PagePool


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
