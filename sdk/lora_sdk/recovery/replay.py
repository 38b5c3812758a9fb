"""Computes again what boards held of open sequences.

The rows are those that ran before: committed tokens, then rows in scratch slots, in the same slots.
K and V of a row depend on its tokens and adapter alone, not on the rows that share its step, so the
boards hold the same bytes afterwards. Pages that sequences share are written by each of them, with
the same bytes. K and V that were imported are written again. The cache's books do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lora_sdk.kv.header_queue import HeaderQueue
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_op import KvOp
from lora_sdk.kv.kv_sequence import KEPT_PAGES, PAGE_POSITIONS, held, pages_for
from lora_sdk.kv.sequence_state import SequenceState, Uncommitted
from lora_sdk.step.step import Row

RunStep = Callable[[Sequence[Row], Sequence[KvOp], Sequence[int]], object]
WriteKv = Callable[[Sequence[int], KvArrays], object]
"""Writes K and V to pages."""


class Replay:
    """Replays sequences on boards whose tables are empty."""

    def __init__(
        self,
        run: RunStep,
        row_limit: int,
        max_scratch: int,
        max_ops: int,
        write_kv: WriteKv | None = None,
    ) -> None:
        """`write_kv`: None where no sequence was imported."""
        self.rows = 0  # that were run
        self._write_kv = write_kv
        self._run_step = run
        self._row_limit = row_limit
        self._half = min(max_scratch // 2, KEPT_PAGES * PAGE_POSITIONS)
        self._queue = HeaderQueue(max_ops)
        self._turn = 0

    def run(self, sequences: Sequence[SequenceState]) -> None:
        """Run all rows. LoraError if a step fails."""
        for one in sequences:
            self._queue.add(KvOp.length(one.sequence, 0))
            for tile, page in enumerate(_pages(one.pages)):
                self._queue.add(KvOp.table(one.sequence, tile, page))
            if one.imported is not None:
                self._import(one, one.imported)
        self._run_committed([one for one in sequences if one.tokens])
        while self._queue:
            self._step(())
        held = [(one.sequence, *item) for one in sequences for item in one.rows.items()]
        for start in range(0, len(held), self._row_limit):
            chosen = held[start : start + self._row_limit]
            self._step([_scratch_row(*item) for item in chosen])

    def _import(self, one: SequenceState, kv: KvArrays) -> None:
        assert self._write_kv is not None
        self._write_kv(one.pages[: pages_for(kv.positions)], kv)
        self._queue.add(KvOp.length(one.sequence, kv.positions))

    def _run_committed(self, sequences: Sequence[SequenceState]) -> None:
        """Fill steps with tokens, sequence by sequence. No slot is in use yet. Steps take the two
        halves alternately, since a step's header commits the slots of the step before."""
        limit = min(self._row_limit, self._half)
        rows: list[Row] = []
        commits: list[tuple[KvOp, list[int]]] = []
        for one in sequences:
            start = 0 if one.imported is None else one.imported.positions
            while start < len(one.tokens):
                count = min(limit - len(rows), len(one.tokens) - start)
                first = self._turn * self._half + len(rows)
                slots = list(range(first, first + count))
                rows += _chain(one, start, slots)
                commits.append((KvOp.commit(one.sequence, start, 0, count), slots))
                start += count
                if len(rows) == limit:
                    self._run_rows(rows, commits)
                    rows, commits = [], []
        if rows:
            self._run_rows(rows, commits)

    def _run_rows(self, rows: Sequence[Row], commits: Sequence[tuple[KvOp, list[int]]]) -> None:
        self._step(rows)
        self._turn ^= 1
        for op, slots in commits:
            self._queue.add(op, slots)

    def _step(self, rows: Sequence[Row]) -> None:
        while rows and len(self._queue) > self._queue.max_ops:
            self._step(())
        header = self._queue.next_header()
        self._run_step(rows, header.kv_ops, header.path)
        self._queue.carried()
        self.rows += len(rows)


def _pages(pages: Sequence[int]) -> list[int]:
    """A page for every tile. The first ones were given back: their K and V, which the next tiles'
    rows read, pass through the pages that are left, which end with what they held. These are what
    rows see and KEPT_PAGES more: a step commits no more positions, so none is written twice."""
    left = held(pages)
    gone = len(pages) - len(left)
    return [left[(tile - gone) % len(left)] for tile in range(gone)] + left


def _chain(one: SequenceState, start: int, slots: Sequence[int]) -> list[Row]:
    return [
        Row(
            one.sequence,
            start + i,
            one.tokens[start + i],
            slot,
            slots[i - 1] if i else -1,
            vector=one.vectors.get(start + i),
        )
        for i, slot in enumerate(slots)
    ]


def _scratch_row(sequence: int, slot: int, row: Uncommitted) -> Row:
    return Row(sequence, row.position, row.token, slot, row.parent, vector=row.vector)
