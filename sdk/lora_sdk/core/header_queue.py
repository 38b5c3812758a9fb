"""KV operations that wait for a step header, and what becomes free once they were carried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lora_sdk.core.step import KvOp


@dataclass
class Header:
    """KV operations of one step header, and the path array that its commits index."""

    kv_ops: list[KvOp]
    path: list[int]


class HeaderQueue:
    """Operations in order, each with its commit's path. `leaving_slots` and `leaving_pages` are
    freed by queued operations: they are free once every operation that is queued with them has been
    carried, because a redone step reads them once more."""

    def __init__(self, max_ops: int) -> None:
        """`max_ops`: operations that one header holds."""
        self.max_ops = max_ops
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.leaving_slots: list[int] = []
        self.leaving_pages: list[int] = []
        self._ops: list[tuple[KvOp, tuple[int, ...]]] = []
        self._sent: tuple[int, int, int] | None = (
            None  # operations, slots, pages in the last header
        )

    def __len__(self) -> int:
        return len(self._ops)

    def add(self, op: KvOp, path: Sequence[int] = ()) -> None:
        """Queue an operation; `path` of a commit, whose index in the header is set here."""
        self._ops.append((op, tuple(path)))

    def next_header(self) -> Header:
        """The oldest operations, as many as one header holds."""
        taken = self._ops[: self.max_ops]
        header = Header([], [])
        for op, path in taken:
            moved = bool(path) and op.b != len(header.path)
            header.kv_ops.append(replace(op, b=len(header.path)) if moved else op)
            header.path.extend(path)
        self._sent = (len(taken), len(self.leaving_slots), len(self.leaving_pages))
        return header

    def carried(self) -> tuple[list[int], list[int]]:
        """The step with the last header has completed: slots and pages that are free now."""
        if self._sent is None:
            return [], []
        ops, slots, pages = self._sent
        self._sent = None
        del self._ops[:ops]
        if self._ops:  # some that free something are still queued
            return [], []
        freed = self.leaving_slots[:slots], self.leaving_pages[:pages]
        del self.leaving_slots[:slots]
        del self.leaving_pages[:pages]
        return freed

    def not_carried(self) -> None:
        """The step did not run: its operations stay queued."""
        self._sent = None
