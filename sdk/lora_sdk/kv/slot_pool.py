"""The scratch slots of the KV cache: free, taken for a row of the next step, or holding a row.

A slot that a header frees goes back only after the step with that header, because a redone step
reads it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from lora_host.errors import RequestError
from lora_sdk.kv.header_queue import HeaderQueue


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
