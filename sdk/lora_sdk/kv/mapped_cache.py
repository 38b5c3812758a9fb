"""A KV cache whose pages another scheduler assigns, e.g. vLLM's.

That one decides which page holds which positions, when a page is free, and what prefixes share.
Here the caller names the pages of a sequence; rows, commits and recoveries are as in KvCache."""

from __future__ import annotations

from collections.abc import Sequence

from lora_host.errors import PlacementError, RequestError
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kvcache import KvCache, SequenceObserver
from lora_sdk.kv.pages import PAGE_POSITIONS, PagePool, pages_for


class CallersPages(PagePool):
    """Pages that none is taken of: the caller knows which are in use."""

    def clear(self, end: int | None = None, spilled: int | None = None) -> None:
        """Forget all content."""
        super().clear(end, spilled)
        self._near.clear()
        self._far.clear()

    @property
    def first(self) -> int:
        """The first page behind the scratch slots."""
        return self._first

    def release(self, page: int) -> None:
        """Nothing: the caller counts references."""


class MappedKvCache(KvCache):
    """Sequences, slots and headers of one loaded model, with pages of the caller."""

    pool_type = CallersPages
    _pool: CallersPages

    def __init__(
        self,
        page_count: int,
        max_sequences: int,
        max_scratch: int,
        context: int,
        max_ops: int,
        states: bool = False,
        observer: SequenceObserver | None = None,
    ) -> None:
        super().__init__(page_count, max_sequences, max_scratch, context, max_ops, states, observer)
        self.found = 0  # positions that sequences started with, in all
        self._lost_pages: set[int] = set()  # written before the boards lost everything

    @property
    def first_page(self) -> int:
        """The lowest page that a sequence may have."""
        return self._pool.first

    def start(self, tokens: Sequence[int], pages: Sequence[int], kv: KvArrays | None = None) -> int:
        """A new sequence in `pages`, which hold K and V of its first positions, of `tokens`. Where
        boards have lost that, these are computed again before its rows, or the first of them
        written again as `kv`. Returns its number."""
        if len(pages) < pages_for(len(tokens)):
            raise RequestError(
                f"{len(tokens)} positions in {len(pages)} pages; expected {pages_for(len(tokens))}"
            )
        number = self.open()
        try:
            self.map(number, pages)
        except RequestError:
            self.close(number)
            raise
        self.found += len(tokens)
        if self._lost_pages.isdisjoint(pages[: pages_for(len(tokens))]):
            self.begin(number, tokens, kv)
        else:
            self._open[number].lost, self._open[number].imported = list(tokens), kv
            self.has_lost = True
        return number

    def filled(self, pages: Sequence[int]) -> None:
        """Pages have got K and V of all their positions from elsewhere."""
        self._lost_pages.difference_update(pages)

    def written(self, sequence: int) -> None:
        """As in KvCache."""
        super().written(sequence)
        self.filled(self.pages_of(sequence, 0, self.computed(sequence)))

    def map(self, sequence: int, pages: Sequence[int]) -> None:
        """Append pages to a sequence's table. RequestError: one is outside the cache, or there are
        more than the context has."""
        known = self._tables.get(sequence).pages
        end = self._pool.end
        outside = [page for page in pages if not self.first_page <= page < end]
        if outside:
            raise RequestError(
                f"page {outside[0]} of sequence {sequence}; expected {self.first_page}..{end - 1}"
            )
        if len(known) + len(pages) > pages_for(self.context):
            raise RequestError(
                f"sequence {sequence} would have {len(known) + len(pages)} pages; the context of "
                f"{self.context} positions has {pages_for(self.context)}"
            )
        for page in pages:
            self._tables.append(sequence, page)

    def pages_of(self, sequence: int, start: int, end: int) -> tuple[int, ...]:
        """The pages of positions `start` to `end` - 1."""
        return self.pages(sequence)[start // PAGE_POSITIONS : pages_for(end)]

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """As in KvCache: move a path of slots to the next positions; drop the other rows."""
        start = self.computed(sequence)
        super().commit(sequence, path)
        if self._lost_pages:
            written = self.pages_of(sequence, start, start + len(path))
            self._lost_pages.difference_update(written)

    def lose(self, page_count: int | None = None, first_spilled: int | None = None) -> int:
        """As in KvCache; sequences keep their pages. PlacementError: there are fewer pages now."""
        if page_count is not None and page_count < self._pool.end:
            raise PlacementError(
                f"{page_count} KV pages remain of {self._pool.end}, which requests were promised; "
                "start again on the boards that remain"
            )
        mapped = {number: self.pages(number) for number in self._open}
        end = self._pool.end
        positions = super().lose(end, first_spilled)
        self._lost_pages.update(range(self.first_page, end))
        for number, pages in mapped.items():
            self.map(number, pages)
        return positions
