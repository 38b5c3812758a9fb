"""Changes of the boards' page tables and cache: the operations, their queue for step headers, and
the scratch slots and pages that they free.

A slot or page that a header frees goes back only after the step with that header, because a redone
step reads it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lora_host import abi
from lora_host.errors import RequestError


@dataclass(frozen=True)
class KvOp:
    """One change of the boards' page tables or cache. They run in order, before the step's rows."""

    kind: int
    sequence: int
    a: int
    b: int
    c: int

    @classmethod
    def table(cls, sequence: int, tile: int, page: int) -> KvOp:
        """Map tile `tile` (32 positions) of the sequence to `page`."""
        return cls(abi.KV_TABLE, sequence, tile, page, 0)

    @classmethod
    def length(cls, sequence: int, length: int) -> KvOp:
        """Set the sequence's committed positions to `length`; drop its uncommitted rows."""
        return cls(abi.KV_LENGTH, sequence, length, 0, 0)

    @classmethod
    def copy(cls, source_page: int, target_page: int, positions: int) -> KvOp:
        """Copy the first `positions` positions of one page to another, all layers and heads."""
        return cls(abi.KV_COPY, 0, source_page, target_page, positions)

    @classmethod
    def commit(cls, sequence: int, length: int, path_index: int, count: int) -> KvOp:
        """Commit `count` slots at `path_index` of the step's path as positions from `length` on;
        drop the sequence's other uncommitted rows. `count` may be 0."""
        return cls(abi.KV_COMMIT, sequence, length, path_index, count)


@dataclass
class Header:
    """KV operations of one step header, and the path array that its commits index."""

    kv_ops: list[KvOp]
    path: list[int]


class HeaderQueue:
    """`ops`: operations in order, each with its commit's path.

    Queued operations free `leaving_slots` and `leaving_pages`. These become free once a completed
    step has carried every operation queued with them: a redone step reads them again."""

    def __init__(self, max_ops: int, states: bool = False) -> None:
        """`max_ops`: max operations per header. `states`: boards compute what is behind the pages
        that a header's commits fill (docs/numbers.md, 3.19)."""
        self.max_ops, self._states = max_ops, states
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.leaving_slots: list[int] = []
        self.leaving_pages: list[int] = []
        self.ops: list[tuple[KvOp, tuple[int, ...]]] = []
        # Counts of operations, slots and pages in the last header.
        self._sent: tuple[int, int, int] | None = None

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, op: KvOp, path: Sequence[int] = ()) -> None:
        """Queue an operation. `path`: that of a commit; `next_header` sets its index."""
        self.ops.append((op, tuple(path)))

    @property
    def fits(self) -> int:
        """How many of the oldest operations one header holds."""
        ops = self.ops[: self.max_ops]
        return _before_lost_states(ops) if self._states else len(ops)

    def next_header(self) -> Header:
        """The oldest operations, as many as one header holds."""
        taken = self.ops[: self.fits]
        header = Header([], [])
        for op, path in taken:
            moved = bool(path) and op.b != len(header.path)
            header.kv_ops.append(replace(op, b=len(header.path)) if moved else op)
            header.path.extend(path)
        self._sent = (len(taken), len(self.leaving_slots), len(self.leaving_pages))
        return header

    def step_done(self) -> tuple[list[int], list[int]]:
        """The step with the last header has completed. Returns the slots and pages freed by it."""
        if self._sent is None:
            return [], []
        ops, slots, pages = self._sent
        self._sent = None
        del self.ops[:ops]
        if self.ops:  # operations that free something may still be queued
            return [], []
        freed = self.leaving_slots[:slots], self.leaving_pages[:pages]
        del self.leaving_slots[:slots]
        del self.leaving_pages[:pages]
        return freed

    def step_failed(self) -> None:
        """The step did not run: its operations stay queued."""
        self._sent = None


def _before_lost_states(ops: Sequence[tuple[KvOp, tuple[int, ...]]]) -> int:
    """How many operations there are before a table's change by which boards would not find a page
    that a commit before it fills: of that sequence's tiles up to there; or of a tile that commits
    write, before which boards move what is queued, so that no state is computed."""
    filled: dict[int, int] = {}  # sequence -> tiles up to the end of its commits that fill some
    written: dict[int, tuple[int, int]] = {}  # sequence -> first and last tile of its commits
    size = abi.TILE_POSITIONS
    for at, (op, _) in enumerate(ops):
        end, first, last = op.a + op.c, *written.get(op.sequence, (op.a, -1))
        if op.kind == abi.KV_COMMIT and op.c:
            written[op.sequence] = min(first, op.a // size), max(last, (end - 1) // size)
            if end // size > op.a // size:
                filled[op.sequence] = end // size
        elif op.kind == abi.KV_TABLE and op.a < filled.get(op.sequence, 0):
            return at
        elif op.kind == abi.KV_TABLE and first <= op.a <= last:
            if filled:
                return at
            written.clear()  # moved
    return len(ops)


class SlotPool:
    """Slots 0 to `total` - 1; `free` may be taken now. `queue` holds the slots that leave with the
    next header."""

    def __init__(self, total: int, queue: HeaderQueue) -> None:
        self.total = total
        self._queue = queue
        self.clear()

    def clear(self) -> None:
        """Every slot is free."""
        self.free = deque(range(self.total))

    def leave_all(self) -> None:
        """The boards may hold rows in any slot: all of them leave with the next header."""
        self._queue.leaving_slots.extend(range(self.total))
        self.free.clear()

    def take(self, count: int) -> list[int]:
        """`count` slots for rows of the next step. RequestError if fewer are free."""
        if count > len(self.free):
            raise RequestError(
                f"{count} scratch slots requested, {len(self.free)} of {self.total} are "
                "free; commit or drop uncommitted rows, and run a step"
            )
        return [self.free.popleft() for _ in range(count)]

    def is_taken(self, slot: int) -> bool:
        """Whether a slot is neither free nor about to be: taken, or with a row."""
        leaving = slot in self._queue.leaving_slots
        return 0 <= slot < self.total and not leaving and slot not in self.free

    def give_back(self, slots: Sequence[int]) -> None:
        """Slots that no row has used; they are taken first. Those that are no longer taken stay
        where they are: after Ctrl-C all of them have left."""
        gone = {*self.free, *self._queue.leaving_slots}
        self.free.extendleft(slot for slot in reversed(slots) if slot not in gone)

    def returned(self, slots: Iterable[int]) -> None:
        """The step whose header freed these slots has completed."""
        self.free.extend(slots)
