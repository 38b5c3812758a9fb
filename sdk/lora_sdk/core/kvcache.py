"""Bookkeeping of the boards' KV cache: pages with reference counts, sequences, scratch slots.

The boards hold the bytes. This module assigns pages and slots, and creates the KV operations that
the next step's header carries. A page has 32 positions. The first pages of a board hold the scratch
slots; the others belong to sequences. Pages and slots that a header frees are reused only after the
step with that header has completed, because a redone step reads them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.core.contents import Contents, Uncommitted
from lora_sdk.core.header_queue import Header, HeaderQueue
from lora_sdk.core.step import KvOp

PAGE_POSITIONS = 32


def pages_for(positions: int) -> int:
    """Pages needed for `positions` positions."""
    return -(-positions // PAGE_POSITIONS)


@dataclass
class _Sequence:
    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of the committed positions
    rows: dict[int, Uncommitted] = field(default_factory=dict)  # by slot
    reserved: int = 0  # pages set aside for this sequence, not yet taken
    vectors: dict[int, NDArray[np.float16]] = field(default_factory=dict)  # by position


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

    def __init__(
        self,
        page_count: int,
        max_sequences: int,
        max_scratch: int,
        context: int,
        max_ops: int,
        observer: SequenceObserver | None = None,
    ) -> None:
        self.context = context
        self._observer = observer
        self.max_sequences = max_sequences
        self._first_page = pages_for(max_scratch)
        self._page_count = page_count
        self._max_scratch = max_scratch
        self._queue = HeaderQueue(max_ops)
        self._references: dict[int, int]
        self._pages: deque[int]
        self._mapped: dict[tuple[int, int], int]  # the boards' page of (sequence, tile)
        self._forget()

    def reset(self) -> None:
        """Forget everything, as after a step that may or may not have run."""
        self._forget()
        # The boards may still hold rows: the next step drops them and frees their slots.
        for number in range(self.max_sequences):
            self._queue.add(KvOp.length(number, 0))
        self._queue.leaving_slots.extend(self._slots)
        self._slots.clear()
        if self._observer is not None:
            self._observer.forgotten()

    def lose(self, page_count: int | None = None) -> list[Contents]:
        """The boards have lost everything. Returns what they must compute again, with empty page
        tables to begin with. Sequences stay open, slots stay taken, queued operations are done.

        `page_count`: pages of the boards from now on, None for as many as before. RequestError,
        with nothing changed, if the sequences' pages exceed them."""
        page_count = self._page_count if page_count is None else page_count
        held = self.held_pages
        if held > page_count - self._first_page:
            raise RequestError(
                f"the open sequences need {held} KV pages of {PAGE_POSITIONS} positions, the "
                f"boards that remain have {page_count - self._first_page}"
            )
        self._page_count = page_count
        self._slots.extend(self._queue.leaving_slots)
        self._queue.clear()
        self._renumber_pages()
        return [
            Contents(number, tuple(one.pages), tuple(one.tokens), one.vectors, dict(one.rows))
            for number, one in self._open.items()
        ]

    def _renumber_pages(self) -> None:
        """Give pages in use the first numbers; what sequences share stays shared."""
        numbers = {page: self._first_page + i for i, page in enumerate(self._references)}
        self._references = {numbers[page]: n for page, n in self._references.items()}
        self._pages = deque(range(self._first_page + len(numbers), self._page_count))
        for sequence in self._open.values():
            sequence.pages = [numbers[page] for page in sequence.pages]
        self._mapped = {
            (number, tile): page
            for number, sequence in self._open.items()
            for tile, page in enumerate(sequence.pages)
        }

    def _forget(self) -> None:
        self._references = {}
        self._pages = deque(range(self._first_page, self._page_count))
        self._numbers = deque(range(self.max_sequences))
        self._slots = deque(range(self._max_scratch))
        self._open: dict[int, _Sequence] = {}
        self._mapped = {}
        self._queue.clear()

    # --- state ----------------------------------------------------------------------------------

    @property
    def total_pages(self) -> int:
        """Pages that sequences may have."""
        return self._page_count - self._first_page

    @property
    def free_pages(self) -> int:
        """Pages that are neither in use nor reserved."""
        return len(self._pages) - sum(s.reserved for s in self._open.values())

    @property
    def held_pages(self) -> int:
        """Pages that open sequences have or that are reserved for them."""
        return len(self._references) + sum(s.reserved for s in self._open.values())

    @property
    def free_sequences(self) -> int:
        """Sequences that may still be opened."""
        return len(self._numbers)

    @property
    def free_slots(self) -> int:
        """Scratch slots that the next step's rows may take."""
        return len(self._slots)

    @property
    def queued(self) -> bool:
        """Whether operations wait for a step."""
        return len(self._queue) > 0

    @property
    def more_than_a_header(self) -> bool:
        """Whether the queued operations need a step of their own before the next rows."""
        return len(self._queue) > self._queue.max_ops

    @property
    def leaving(self) -> bool:
        """Whether slots or pages become free once the next step has completed."""
        return bool(self._queue.leaving_slots or self._queue.leaving_pages)

    def is_open(self, sequence: int) -> bool:
        """Whether the sequence is open."""
        return sequence in self._open

    def length(self, sequence: int) -> int:
        """Committed positions of a sequence, queued commits included."""
        return len(self._get(sequence).tokens)

    def tokens(self, sequence: int, start: int = 0) -> tuple[int, ...]:
        """Tokens of the committed positions from `start` on."""
        return tuple(self._get(sequence).tokens[start:])

    def pages(self, sequence: int) -> tuple[int, ...]:
        """Pages of a sequence in logical order."""
        return tuple(self._get(sequence).pages)

    def uncommitted(self, sequence: int) -> dict[int, Uncommitted]:
        """Rows of a sequence that are in scratch slots, by slot."""
        return dict(self._get(sequence).rows)

    # --- sequences ------------------------------------------------------------------------------

    def open(self, reserved: int = 0) -> int:
        """A new empty sequence with `reserved` pages set aside for it."""
        if not self._numbers:
            raise RequestError(
                f"all {self.max_sequences} sequences are open; release one or raise max_sequences"
            )
        if reserved > self.free_pages:
            raise RequestError(f"{reserved} KV pages requested, {self.free_pages} are free")
        number = self._numbers.popleft()
        self._open[number] = _Sequence(reserved=reserved)
        self._queue.add(KvOp.length(number, 0))
        return number

    def close(self, sequence: int) -> None:
        """Give a sequence's pages and slots back."""
        closing = self._get(sequence)
        self._queue.add(KvOp.length(sequence, 0))
        self._queue.leaving_slots.extend(closing.rows)
        for page in closing.pages:
            self._release(page)
        del self._open[sequence]
        self._numbers.append(sequence)
        if self._observer is not None:
            self._observer.closed(sequence)

    def fork(self, sequence: int, reserved: int = 0) -> int:
        """A new sequence with the same committed positions.

        Full pages are shared; a partial last page is copied. `reserved` pages of the parent's
        reservation move to the child's. Uncommitted rows stay with the parent.
        """
        parent = self._get(sequence)
        moved = min(reserved, parent.reserved)
        if len(parent.tokens) % PAGE_POSITIONS and not moved and self.free_pages <= 0:
            raise self._exhausted()
        child = self.open()
        forked = self._open[child]
        parent.reserved -= moved
        forked.reserved = moved
        full, rest = divmod(len(parent.tokens), PAGE_POSITIONS)
        for page in parent.pages[:full]:
            self._references[page] += 1
            self._append(child, page)
        if rest:
            page = self._take_page(child)
            self._queue.add(KvOp.copy(parent.pages[full], page, rest))
        forked.tokens, forked.vectors = list(parent.tokens), dict(parent.vectors)
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
        changed = {child: parent for child, parent in parents.items() if child != parent}
        copied = self._copied(parents)
        if sum(not self._get(child).reserved for child in copied) > max(0, self.free_pages):
            raise self._exhausted()
        continued, rebuilt = {}, {}
        for child, parent in changed.items():
            tokens, vectors = self._get(parent).tokens, dict(self._get(parent).vectors)
            pages = self._get(parent).pages[: pages_for(len(tokens))]
            if child in copied:
                source, pages[-1] = pages[-1], self._reserved_page(child)
                self._queue.add(KvOp.copy(source, pages[-1], len(tokens) % PAGE_POSITIONS))
            for page in pages[: -1 if child in copied else None]:
                self._references[page] += 1
            continued[child] = pages, tokens
            rebuilt[child] = vectors
        for child, (pages, tokens) in continued.items():
            self._replace(child, pages, tokens)
            self._open[child].vectors = rebuilt[child]

    def _copied(self, parents: Mapping[int, int]) -> set[int]:
        """The sequences that need a copy of their new parent's last page: it is partial, and the
        parent itself or another of its continuations keeps it."""
        kept = {sequence for sequence in parents.values() if parents.get(sequence) == sequence}
        kept |= set(parents.values()) - set(parents)
        copied = set()
        for child, parent in parents.items():
            if child == parent or not len(self._get(parent).tokens) % PAGE_POSITIONS:
                continue
            if parent in kept:
                copied.add(child)
            kept.add(parent)
        return copied

    def _replace(self, sequence: int, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """Give a sequence other pages, already referenced, and the tokens in them."""
        owner = self._open[sequence]
        left, owner.pages, owner.tokens = owner.pages, [], list(tokens)
        for page in pages:
            self._append(sequence, page)
        for page in left:
            self._release(page)
        self._queue.add(KvOp.length(sequence, len(tokens)))
        self._queue.leaving_slots.extend(owner.rows)
        owner.rows.clear()

    def grow(self, sequence: int, positions: int) -> None:
        """Extend the sequence's page table to `positions` positions."""
        if positions > self.context:
            raise RequestError(
                f"sequence {sequence} would have {positions} positions, {positions - self.context} "
                f"more than the context of {self.context}"
            )
        while len(self._get(sequence).pages) < pages_for(positions):
            self._take_page(sequence)

    def _take_page(self, sequence: int) -> int:
        page = self._reserved_page(sequence)
        self._append(sequence, page)
        return page

    def reserve(self, sequence: int, pages: int) -> None:
        """Set aside pages until a sequence has `pages`, its own included."""
        owner = self._get(sequence)
        missing = pages - len(owner.pages) - owner.reserved
        if missing > max(0, self.free_pages):
            raise self._exhausted()
        owner.reserved += max(0, missing)

    def _reserved_page(self, sequence: int) -> int:
        """A page out of the sequence's reservation, else a free one."""
        owner = self._open[sequence]
        if owner.reserved:
            owner.reserved -= 1
        elif self.free_pages <= 0:
            raise self._exhausted()
        page = self._pages.popleft()
        self._references[page] = 1
        return page

    def _append(self, sequence: int, page: int) -> None:
        """Map the sequence's next tile to a page. The boards are told if theirs differs."""
        pages = self._open[sequence].pages
        at = (sequence, len(pages))
        pages.append(page)
        if self._mapped.get(at) != page:
            self._mapped[at] = page
            self._queue.add(KvOp.table(*at, page))

    def _exhausted(self) -> RequestError:
        return RequestError(
            f"KV pages are exhausted: {self.total_pages} of {PAGE_POSITIONS} positions are in use "
            "or reserved; release a sequence or plan for fewer or shorter ones"
        )

    def _release(self, page: int) -> None:
        self._references[page] -= 1
        if self._references[page] == 0:
            del self._references[page]
            # A queued copy may still read it, and again if its step is redone.
            self._queue.leaving_pages.append(page)

    def _get(self, sequence: int) -> _Sequence:
        try:
            return self._open[sequence]
        except KeyError:
            raise RequestError(
                f"sequence {sequence} is not open; open: {sorted(self._open) or 'none'}"
            ) from None

    # --- rows -----------------------------------------------------------------------------------

    def take_slots(self, count: int) -> list[int]:
        """`count` scratch slots for rows of the next step."""
        if count > len(self._slots):
            raise RequestError(
                f"{count} scratch slots requested, {len(self._slots)} of {self._max_scratch} are "
                "free; commit or drop uncommitted rows, and run a step"
            )
        return [self._slots.popleft() for _ in range(count)]

    def is_taken(self, slot: int) -> bool:
        """Whether a slot has been taken and holds no row yet."""
        free = self._slots.count(slot) or slot in self._queue.leaving_slots
        return (
            0 <= slot < self._max_scratch
            and not free
            and not any(slot in sequence.rows for sequence in self._open.values())
        )

    def give_slots(self, slots: Sequence[int]) -> None:
        """Give back slots that no row has used."""
        self._slots.extendleft(reversed(slots))

    def add_row(self, sequence: int, slot: int, row: Uncommitted) -> None:
        """Record a row that a completed step has run."""
        self._get(sequence).rows[slot] = row

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Move a path of slots, root first, to the next logical positions; drop the other rows."""
        owner = self._get(sequence)
        start = len(owner.tokens)
        self._check_path(sequence, path)
        self.grow(sequence, start + len(path))
        self._queue.add(KvOp.commit(sequence, start, 0, len(path)), path)
        for slot in path:
            row = owner.rows[slot]
            if row.vector is not None:
                owner.vectors[len(owner.tokens)] = row.vector
            owner.tokens.append(row.token)
        self._queue.leaving_slots.extend(owner.rows)
        owner.rows.clear()

    def drop(self, sequence: int) -> None:
        """Drop every uncommitted row of a sequence."""
        if self._get(sequence).rows:
            self.commit(sequence, ())

    def committed_elsewhere(self, sequence: int, tokens: Sequence[int]) -> None:
        """Record positions that the boards committed themselves (the greedy loop)."""
        self._get(sequence).tokens.extend(tokens)

    def _check_path(self, sequence: int, path: Sequence[int]) -> None:
        rows = self._open[sequence].rows
        parent = -1
        for slot in path:
            if slot not in rows:
                raise RequestError(f"slot {slot} holds no uncommitted row of sequence {sequence}")
            if rows[slot].parent != parent:
                raise RequestError(
                    f"slot {slot} of sequence {sequence} has parent {rows[slot].parent}; the path "
                    f"to commit has {parent} before it"
                )
            parent = slot

    # --- headers --------------------------------------------------------------------------------

    def next_header(self) -> Header:
        """The oldest queued operations, as many as one header holds."""
        return self._queue.next_header()

    def step_done(self) -> None:
        """The step with the last header has completed: the slots and pages it freed are free."""
        slots, pages = self._queue.carried()
        self._slots.extend(slots)
        self._pages.extend(pages)

    def step_failed(self) -> None:
        """The step did not run: its header stays queued."""
        self._queue.not_carried()
