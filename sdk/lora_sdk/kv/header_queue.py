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
        that a header's commits fill (docs/numbers.md, 3.19), by the page tables behind all of its
        operations. So a commit that fills a page is the last of its header."""
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
        if not self._states:
            return min(len(self.ops), self.max_ops)
        for at, (op, _) in enumerate(self.ops[: self.max_ops]):
            end = op.a + op.c
            if op.kind == abi.KV_COMMIT and end // abi.TILE_POSITIONS > op.a // abi.TILE_POSITIONS:
                return at + 1
        return min(len(self.ops), self.max_ops)

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
