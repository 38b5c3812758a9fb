"""Bookkeeping of the boards' KV cache: pages with reference counts, sequences, scratch slots.

The boards hold the bytes. This module assigns pages and slots, and creates the KV operations that
the next step's header carries. A page has 32 positions. The first pages of a board hold the scratch
slots; the others belong to sequences. Pages and slots that a header frees are reused only after the
step with that header has completed, because a redone step reads them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.kv.header_queue import Header, HeaderQueue, KvOp, SlotPool
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_offload import KvOffload
from lora_sdk.kv.kv_statistics import KvUse, PrefixCounts
from lora_sdk.kv.pages import (
    PAGE_POSITIONS,
    RETURNED,
    KvSequence,
    PagePool,
    PageTables,
    PendingWrites,
    Uncommitted,
    held,
    pages_for,
    rows_lost,
)
from lora_sdk.kv.prefix_cache import PrefixCache, PrefixHits
from lora_sdk.kv.reorder import copies, has_pages, reorder

__all__ = ["PAGE_POSITIONS", "KvCache", "Uncommitted", "pages_for"]


class SequenceObserver(Protocol):
    """Callbacks for forked, closed and forgotten sequences."""

    def forked(self, parent: int, child: int) -> None: ...

    def closed(self, sequence: int) -> None: ...

    def forgotten(self) -> None: ...


class KvCache:
    """Pages, sequences and slots of one loaded model.

    `page_count` includes the scratch pages. Raises RequestError if pages, sequences or slots
    run out, or if a call names a sequence that is not open.
    """

    pool_type: type[PagePool] = PagePool

    def __init__(
        self,
        page_count: int,
        max_sequences: int,
        max_scratch: int,
        context: int,
        max_ops: int,
        states: bool = False,
        observer: SequenceObserver | None = None,
        window: int = 0,
        first_spilled: int | None = None,
    ) -> None:
        """`states`: as of HeaderQueue. `window`: positions that a row sees in every layer, 0 for
        all; pages before them are given back. `first_spilled`: pages from there on are taken when
        no others are free."""
        self.context = context
        self._window = window
        self._observer = observer
        self.max_sequences = max_sequences
        self._queue = HeaderQueue(max_ops, states)
        self._slots = SlotPool(max_scratch, self._queue)
        spilled = page_count if first_spilled is None else first_spilled
        self._pool = self.pool_type(pages_for(max_scratch), page_count, self._queue, spilled)
        self._tables = PageTables(self._pool, self._queue, pages_for(max_scratch))
        self._open = self._tables.sequences
        self.fills = PendingWrites()
        self.prefixes = PrefixCache(self._pool)
        self.losses = 0  # times that the boards have lost everything
        self._adoption = PrefixHits(self._tables, self._pool, self._queue, self.prefixes)
        self._forget()

    def use_host(self, offload: KvOffload) -> None:
        """Let the host keep the cached pages that are evicted from now on."""
        self.prefixes.offload = offload
        self._pool.on_evict = offload.evicted

    def reset(self) -> None:
        """Forget everything, as after a step that may or may not have run. Pages of the host stay:
        what they hold depends on their tokens alone. The sequences that were open may be closed
        once more, as by a `finally`."""
        open_until_now = set(self._open)
        self._forget()
        self._forgotten.update(open_until_now)
        self._invalidate_prefixes()
        self._empty_tables()
        self._slots.leave_all()
        if self._observer is not None:
            self._observer.forgotten()

    def lose(self, page_count: int | None = None, first_spilled: int | None = None) -> int:
        """The boards have lost everything. Sequences stay open, and none of their positions is
        computed any more; rows in slots are gone. Returns the number of these positions.

        `page_count`: pages of the boards from now on, None for as many as before; `first_spilled`
        as at first, None for no others."""
        first = pages_for(self._slots.total)
        total = self._pool.total if page_count is None else page_count - first
        spilled = first_spilled if first_spilled is not None else page_count
        self.fills.stop_all()
        self._invalidate_prefixes()
        leaving = list(self._queue.leaving_slots)
        for one in self._open.values():
            leaving += one.rows
            one.lose()
        self._queue.clear()
        self._queue.leaving_slots.extend(leaving)
        self._tables.forget_mapped()
        self._pool.clear(first + total, self._pool.spilled if spilled is None else spilled)
        self._empty_tables()
        self.losses += 1
        self.has_lost = bool(self._open)
        return sum(len(one.lost) for one in self._open.values())

    def _empty_tables(self) -> None:
        """The boards may still hold rows: the next step drops them and frees their slots."""
        for number in range(self.max_sequences):
            self._queue.add(KvOp.length(number, 0))

    def forget_host_pages(self) -> None:
        """Drop what the host keeps of evicted pages."""
        if self.prefixes.offload is not None:
            self.prefixes.offload.host.clear()

    def _invalidate_prefixes(self) -> None:
        if self.prefixes.offload is not None:
            self.prefixes.offload.host.distrust()

    def _forget(self) -> None:
        self.fills.stop_all()
        self._numbers = deque(range(self.max_sequences))
        self._forgotten: set[int] = set()
        self.has_lost = False
        self._tables.clear()
        self._queue.clear()
        self._slots.clear()
        self._pool.clear()

    # --- state ----------------------------------------------------------------------------------

    @property
    def total_pages(self) -> int:
        """Pages that sequences may have."""
        return self._pool.total

    @property
    def free_pages(self) -> int:
        """Pages that are neither in use nor reserved. Cached ones count: they are evicted."""
        return self._tables.free_pages

    def use(self, prefixes: PrefixCounts, preempted: int) -> KvUse:
        """What the pages hold now."""
        pool, reserved = self._pool, self._tables.reserved
        held = pool.total - pool.available + reserved
        free = max(0, pool.free - reserved)
        cached = pool.total - held - free
        return KvUse(
            pool.total, held, cached, free, pool.evictions, prefixes.looked_up, prefixes.cached,
            preempted, None if self.prefixes.offload is None else self.prefixes.offload.host.use,
        )  # fmt: skip

    @property
    def held_pages(self) -> int:
        """Pages that open sequences have or that are reserved for them."""
        return self._pool.referenced + self._tables.reserved

    @property
    def free_sequences(self) -> int:
        """Sequences that may still be opened."""
        return len(self._numbers)

    @property
    def free_slots(self) -> int:
        """Scratch slots that the next step's rows may take."""
        return len(self._slots.free)

    @property
    def queued(self) -> bool:
        """Whether operations wait for a step."""
        return len(self._queue) > 0

    @property
    def more_than_a_header(self) -> bool:
        """Whether the queued operations need a step of their own before the next rows."""
        return len(self._queue.ops) > self._queue.fits

    @property
    def leaving(self) -> bool:
        """Whether slots or pages become free once the next step has completed."""
        return bool(self._queue.leaving_slots or self._queue.leaving_pages)

    def is_open(self, sequence: int) -> bool:
        """Whether the sequence is open."""
        return sequence in self._open

    def identity(self, sequence: int) -> object | None:
        """An object that is another one for every use of the number; None if it is not open."""
        return self._open.get(sequence)

    def length(self, sequence: int) -> int:
        """Committed positions of a sequence, queued commits and lost ones included."""
        owner = self._tables.get(sequence)
        return len(owner.tokens) + len(owner.lost)

    def computed(self, sequence: int) -> int:
        """Its committed positions whose K and V are on the boards."""
        return len(self._tables.get(sequence).tokens)

    def tokens(self, sequence: int, start: int = 0) -> tuple[int, ...]:
        """Tokens of the committed positions from `start` on."""
        owner = self._tables.get(sequence)
        return tuple((owner.tokens + owner.lost)[start:] if owner.lost else owner.tokens[start:])

    def pages(self, sequence: int) -> tuple[int, ...]:
        """Pages of a sequence in logical order, RETURNED for those that it has given back."""
        return tuple(self._tables.get(sequence).pages)

    def spilled_positions(self, sequence: int) -> int:
        """Positions of the sequence's pages in the boards' slower banks, whole pages."""
        found = self._open.get(sequence)
        pages = [] if found is None else found.pages
        return self._pool.spilled_among(pages) * PAGE_POSITIONS

    def uncommitted(self, sequence: int) -> dict[int, Uncommitted]:
        """Rows of a sequence that are in scratch slots, by slot."""
        return dict(self._tables.get(sequence).rows)

    # --- sequences ------------------------------------------------------------------------------

    def open(self, reserved: int = 0, root: bytes | None = None) -> int:
        """A new empty sequence with `reserved` pages set aside for it.

        `root`: digest of all that its K and V depend on besides its tokens. Its pages may then
        serve later sequences with the same root; without it they never do."""
        if not self._numbers:
            raise RequestError(
                f"all {self.max_sequences} sequences are open; release one or raise max_sequences"
            )
        if reserved > self.free_pages:
            raise RequestError(f"{reserved} KV pages requested, {self.free_pages} are free")
        number = self._numbers.popleft()
        self._forgotten.discard(number)
        digests = None if root is None else [root]
        self._open[number] = KvSequence(reserved=reserved, digests=digests)
        self._queue.add(KvOp.length(number, 0))
        return number

    def close(self, sequence: int) -> None:
        """Give a sequence's pages and slots back."""
        if sequence in self._forgotten:
            self._forgotten.remove(sequence)
            return
        closing = self._tables.get(sequence)
        self.fills.stop(sequence)
        self._queue.add(KvOp.length(sequence, 0))
        self._queue.leaving_slots.extend(closing.rows)
        self.prefixes.note_partial(closing)
        for page in reversed(held(closing.pages)):  # the last are of no use without the first
            self._pool.release(page)
        del self._open[sequence]
        self._numbers.append(sequence)
        if self._observer is not None:
            self._observer.closed(sequence)

    def fork(self, sequence: int, reserved: int = 0) -> int:
        """A new sequence with the same committed positions.

        Full pages are shared; a partial last page is copied. `reserved` pages of the parent's
        reservation move to the child's. Uncommitted rows stay with the parent.
        """
        parent = self._tables.get(sequence)
        moved = min(reserved, parent.reserved)
        if len(parent.tokens) % PAGE_POSITIONS and not moved and self.free_pages <= 0:
            raise self._tables.exhausted()
        child = self.open()
        forked = self._open[child]
        parent.reserved -= moved
        forked.reserved = moved
        full, rest = divmod(len(parent.tokens), PAGE_POSITIONS)
        for page in parent.pages[:full]:
            if page != RETURNED:
                self._pool.share(page)
            self._tables.append(child, page)
        if rest:
            page = self._tables.extend(child)
            self._queue.add(KvOp.copy(parent.pages[full], page, rest))
        forked.tokens, forked.vectors = list(parent.tokens), dict(parent.vectors)
        forked.digests = None if parent.digests is None else list(parent.digests)
        forked.imported, forked.lost = parent.imported, list(parent.lost)
        self._queue.add(KvOp.length(child, len(forked.tokens)))
        if self._observer is not None:
            self._observer.forked(sequence, child)
        return child

    def reorder(self, parents: Mapping[int, int]) -> None:
        """Let each sequence continue the committed positions of another one, or of itself: all at
        once, as a step of a beam search does. All of them use the same adapter.

        Full pages are shared. A partial last page goes to one of its continuations and is copied
        for the others. Uncommitted rows of a sequence that changes are dropped. RequestError, with
        nothing changed, if there are too few pages for the copies."""
        reorder(self._tables, self._pool, self._queue, parents)

    def can_reorder(self, parents: Mapping[int, int]) -> bool:
        """Whether there are pages for the copies of `reorder`."""
        return has_pages(self._tables, self._pool, copies(self._tables, parents))

    def grow(self, sequence: int, positions: int) -> None:
        """Extend the sequence's page table to `positions` positions."""
        if positions > self.context:
            raise RequestError(
                f"sequence {sequence} would have {positions} positions, {positions - self.context} "
                f"more than the context of {self.context}"
            )
        while len(self._tables.get(sequence).pages) < pages_for(positions):
            self._tables.extend(sequence)

    def lacking(self, sequence: int, rows: int, forks: int = 0) -> int:
        """Pages that a sequence would need besides its own and reserved ones to commit so many more
        positions and to be forked then."""
        owner = self._tables.get(sequence)
        positions = len(owner.tokens) + len(owner.lost) + rows
        copies = forks if positions % PAGE_POSITIONS else 0
        return max(0, pages_for(positions) + copies - len(owner.pages) - owner.reserved)

    def room(self, sequence: int, evicted: int) -> int:
        """Positions that a sequence can still grow by, in its own pages and free ones, and in those
        of at most `evicted` cached pages."""
        owner = self._tables.get(sequence)
        others = self.free_pages
        others = max(0, min(others, max(others - self._pool.cached, evicted)))
        return (len(owner.pages) + owner.reserved + others) * PAGE_POSITIONS - len(owner.tokens)

    def trim(self, sequence: int) -> None:
        """Free the pages beyond a sequence's committed positions: grown into but never written."""
        owner = self._tables.get(sequence)
        while len(owner.pages) > pages_for(len(owner.tokens)):
            self._pool.give_back(owner.pages.pop())

    # --- cached pages ---------------------------------------------------------------------------

    def adopt(self, sequence: int, digests: Sequence[bytes], tokens: Sequence[int]) -> int:
        """Begin an empty sequence with cached K and V of `tokens`, the last one's excluded.

        Full pages are shared. Of one more page that begins with the next tokens, these positions
        are copied. Returns the number of committed positions."""
        return self._adoption.adopt(sequence, digests, tokens)

    def limit_reserve(self, sequence: int, pages: int) -> None:
        """Give back what is reserved for a sequence beyond `pages` pages, its own included."""
        owner = self._tables.get(sequence)
        owner.reserved = max(0, min(owner.reserved, pages - len(owner.pages)))

    # --- imported positions ---------------------------------------------------------------------

    def begin(self, sequence: int, tokens: Sequence[int], kv: KvArrays | None = None) -> None:
        """Commit `tokens` to an empty sequence whose pages hold their K and V already.

        `kv`: the same in the boards' column order, to be written again after a recovery; None: rows
        of the tokens compute the same bytes."""
        owner = self._tables.get(sequence)
        if owner.tokens or owner.rows or len(owner.pages) < pages_for(len(tokens)):
            raise RequestError(f"sequence {sequence} is not empty, or has too few pages")
        owner.tokens, owner.imported = list(tokens), kv
        self.prefixes.note(owner)
        self._queue.add(KvOp.length(sequence, len(owner.tokens)))

    def imported(self, sequence: int) -> KvArrays | None:
        """What `begin` was given to be written again."""
        return self._tables.get(sequence).imported

    # --- lost positions -------------------------------------------------------------------------

    def lost(self, sequence: int) -> Sequence[int]:
        """Tokens of committed positions that no board holds: their rows run before any other."""
        return self._tables.get(sequence).lost

    def vector(self, sequence: int, position: int) -> NDArray[np.float16] | None:
        """The input of a committed position, if it was no token."""
        return self._tables.get(sequence).vectors.get(position)

    def lost_import(self, sequence: int) -> KvArrays | None:
        """K and V to be written to the sequence's pages before its rows run; None: nothing."""
        owner = self._tables.get(sequence)
        if owner.imported is None or owner.tokens:
            return None
        self.grow(sequence, owner.imported.positions)
        return owner.imported

    def written(self, sequence: int) -> None:
        """The pages hold what `lost_import` gave."""
        owner = self._tables.get(sequence)
        assert owner.imported is not None
        count = owner.imported.positions
        owner.tokens, owner.lost = owner.lost[:count], owner.lost[count:]
        self._queue.add(KvOp.length(sequence, count))

    def check_parent(self, sequence: int, slot: int) -> None:
        """RowsLostError for a row in a slot that a recovery has emptied."""
        if slot in self._tables.get(sequence).gone:
            raise rows_lost(sequence)

    def note_losses(self) -> None:
        """Some lost positions have been computed."""
        self.has_lost = any(one.lost or one.gone for one in self._open.values())

    # --- rows -----------------------------------------------------------------------------------

    def take_slots(self, count: int) -> list[int]:
        """`count` scratch slots for rows of the next step."""
        return self._slots.take(count)

    def is_taken(self, slot: int) -> bool:
        """Whether a slot has been taken and holds no row yet."""
        held = any(slot in sequence.rows for sequence in self._open.values())
        return self._slots.is_taken(slot) and not held

    def release_slots(self, slots: Sequence[int]) -> None:
        """Give back slots that no row has used."""
        self._slots.give_back(slots)

    def add_row(self, sequence: int, slot: int, row: Uncommitted) -> None:
        """Record a row that a completed step has run."""
        owner = self._tables.get(sequence)
        owner.rows[slot] = row
        owner.gone.discard(slot)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Move a path of slots, root first, to the next logical positions; drop the other rows."""
        owner = self._tables.get(sequence)
        start = len(owner.tokens)
        owner.check_path(sequence, path)
        end = start + len(path)
        if end > min(self.context, len(owner.pages) * PAGE_POSITIONS):  # most fit in their pages
            self.grow(sequence, end)
        self._queue.add(KvOp.commit(sequence, start, 0, len(path)), path)
        for slot in path:
            row = owner.rows[slot]
            if row.vector is not None:
                owner.vectors[len(owner.tokens)] = row.vector
            owner.tokens.append(row.token)
        del owner.lost[: len(path)]
        owner.gone.clear()
        self._note(owner)
        self._queue.leaving_slots.extend(owner.rows)
        owner.rows.clear()

    def _note(self, owner: KvSequence) -> None:
        """Make full pages known to later sequences; give back those that no later row sees."""
        self.prefixes.note(owner)
        if self._window:
            for page in owner.leave(self._window):
                self._pool.release(page)

    def drop(self, sequence: int) -> None:
        """Drop every uncommitted row of a sequence."""
        owner = self._tables.get(sequence)
        owner.gone.clear()
        if owner.rows:
            self.commit(sequence, ())

    def committed_elsewhere(
        self, sequence: int, tokens: Sequence[int], beyond: Sequence[int] = ()
    ) -> None:
        """Record positions that the boards committed themselves (the greedy loop). `beyond`: slots
        of rows that ran after them; these rows are dropped, committed or not."""
        owner = self._tables.get(sequence)
        owner.tokens.extend(tokens)
        self._note(owner)
        if beyond:
            self._queue.add(KvOp.length(sequence, len(owner.tokens)))
            self._queue.leaving_slots.extend(beyond)

    # --- headers --------------------------------------------------------------------------------

    def next_header(self) -> Header:
        """The oldest queued operations, as many as one header holds."""
        return self._queue.next_header()

    def step_done(self) -> None:
        """The step with the last header has completed: the slots and pages it freed are free."""
        slots, pages = self._queue.step_done()
        self._slots.returned(slots)
        if pages:
            self._pool.returned(pages)
        if self.prefixes.offload is not None:
            self.prefixes.offload.host.prove()

    def step_failed(self) -> None:
        """The step did not run: its header stays queued."""
        self._queue.step_failed()
