"""One sequence of the KV cache: its pages, committed tokens, uncommitted rows, and writes into its
pages by another thread while steps run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError, RowsLostError
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.uncommitted import Uncommitted

__all__ = [
    "PAGE_POSITIONS",
    "RETURNED",
    "KvSequence",
    "Uncommitted",
    "held",
    "pages_for",
]

PAGE_POSITIONS = 32
RETURNED = -1  # in place of a page that a sequence has given back


def pages_for(positions: int) -> int:
    """Pages needed for `positions` positions."""
    return -(-positions // PAGE_POSITIONS)


def held(pages: Sequence[int]) -> list[int]:
    """The pages without those that were given back."""
    return [page for page in pages if page != RETURNED]


@dataclass
class KvSequence:
    """What is known of an open sequence. The boards hold the bytes. `pages`: by tile; the first
    ones may be RETURNED."""

    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of the committed positions
    rows: dict[int, Uncommitted] = field(default_factory=dict)  # by slot
    reserved: int = 0  # pages set aside for this sequence, not yet taken
    vectors: dict[int, NDArray[np.float16]] = field(default_factory=dict)  # by position
    digests: list[bytes] | None = None  # the root and those of the full pages; None: never cached
    imported: KvArrays | None = None  # of the first positions: kept for a recovery
    lost: list[int] = field(default_factory=list)  # committed behind `tokens`; no board holds them
    gone: set[int] = field(default_factory=set)  # slots of rows that the boards have lost

    def lose(self) -> None:
        """The boards hold nothing of it any more."""
        self.lost, self.tokens = self.tokens + self.lost, []
        self.gone.update(self.rows)
        self.pages, self.reserved = [], 0
        self.rows.clear()
        if self.digests is not None:
            del self.digests[1:]

    def leave(self, window: int) -> list[int]:
        """Give back the pages that no later row sees if rows see `window` positions."""
        if self.imported is not None:  # these are written again as they came
            return []
        end = (len(self.tokens) + 1 - window) // PAGE_POSITIONS
        if end <= 0 or self.pages[end - 1] == RETURNED:
            return []
        left = held(self.pages[:end])
        self.pages[:end] = [RETURNED] * end
        return left

    def check_path(self, number: int, path: Sequence[int]) -> None:
        """RequestError if slots to commit are not a chain of rows from a root on. `number`: the
        sequence's own, for the message."""
        parent = -1
        for slot in path:
            if slot in self.gone:
                raise rows_lost(number)
            if slot not in self.rows:
                raise RequestError(f"slot {slot} holds no uncommitted row of sequence {number}")
            if self.rows[slot].parent != parent:
                raise RequestError(
                    f"slot {slot} of sequence {number} has parent {self.rows[slot].parent}; the "
                    f"path to commit has {parent} before it"
                )
            parent = slot


def rows_lost(sequence: int) -> RowsLostError:
    """What is raised for rows in slots that a recovery has emptied."""
    return RowsLostError(
        f"uncommitted rows of sequence {sequence} were lost when the boards were recovered; make "
        "and run them again"
    )


class PendingWrite(Protocol):
    """Writes K and V into the pages of an empty sequence."""

    def stop(self) -> None:
        """Return once nothing more is written: the pages may get other contents."""


class PendingWrites:
    """The fills of one KV cache, by sequence."""

    def __init__(self) -> None:
        self._fills: dict[int, PendingWrite] = {}

    def begin(self, sequence: int, fill: PendingWrite) -> None:
        """`fill` writes into the pages of `sequence` from now on."""
        self._fills[sequence] = fill

    def end(self, sequence: int) -> None:
        """All has been written."""
        self._fills.pop(sequence, None)

    def stop(self, sequence: int) -> None:
        """The sequence gives its pages back."""
        fill = self._fills.pop(sequence, None)
        if fill is not None:
            fill.stop()

    def stop_all(self) -> None:
        """The boards lose what they hold, or pages get other numbers."""
        for sequence in list(self._fills):
            self.stop(sequence)
