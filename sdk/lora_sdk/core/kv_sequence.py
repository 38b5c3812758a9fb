"""One sequence of the KV cache: its pages, committed tokens and uncommitted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.core.contents import Uncommitted
from lora_sdk.core.kv_arrays import KvArrays

__all__ = ["PAGE_POSITIONS", "KvSequence", "Uncommitted", "pages_for"]

PAGE_POSITIONS = 32


def pages_for(positions: int) -> int:
    """Pages needed for `positions` positions."""
    return -(-positions // PAGE_POSITIONS)


@dataclass
class KvSequence:
    """What is known of an open sequence. The boards hold the bytes."""

    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of the committed positions
    rows: dict[int, Uncommitted] = field(default_factory=dict)  # by slot
    reserved: int = 0  # pages set aside for this sequence, not yet taken
    vectors: dict[int, NDArray[np.float16]] = field(default_factory=dict)  # by position
    digests: list[bytes] | None = None  # the root and those of the full pages; None: never cached
    imported: KvArrays | None = None  # of the first positions: kept for a recovery

    def check_path(self, number: int, path: Sequence[int]) -> None:
        """RequestError if slots to commit are not a chain of rows from a root on. `number`: the
        sequence's own, for the message."""
        parent = -1
        for slot in path:
            if slot not in self.rows:
                raise RequestError(f"slot {slot} holds no uncommitted row of sequence {number}")
            if self.rows[slot].parent != parent:
                raise RequestError(
                    f"slot {slot} of sequence {number} has parent {self.rows[slot].parent}; the "
                    f"path to commit has {parent} before it"
                )
            parent = slot
