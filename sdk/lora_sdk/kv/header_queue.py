"""KV operations queued for step headers, and the slots and pages that they free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lora_host import abi
from lora_sdk.kv.kv_op import KvOp


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

    def carried(self) -> tuple[list[int], list[int]]:
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

    def not_carried(self) -> None:
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
