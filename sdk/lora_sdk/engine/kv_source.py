"""Sources of the K and V of a sequence's first positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kvcache import KvCache


@dataclass(frozen=True, eq=False)  # compared by identity
class NewSequence:
    """A sequence to be opened for `tokens`, whose rows use `adapter`.

    `pages`: those that it holds or reserves in total. `salt`: sequences with different ones share
    nothing. `recompute`: every token must be computed, because its row's results are wanted.
    `drafted`: its rows may have drafts.
    `kv`: of all tokens but the last, in the boards' column order, with the boards' own bytes; None
    if they are to be found or computed. `keep`: the bytes are others, so that a recovery must write
    them again. `prefill_id`: the name under which a worker by name has them. `note_prefill` is
    called with the mode of a worker once its K and V are those of the sequence, if they are not the
    boards' own."""

    tokens: Sequence[int]
    pages: int
    adapter: str | None = None
    salt: str | None = None
    recompute: bool = False
    drafted: bool = False
    kv: KvArrays | None = None
    keep: bool = False
    prefill_id: str | None = None
    note_prefill: Callable[[str], None] = lambda _: None


class KvSource(Protocol):
    """Opens sequences and fills in K and V. The generator computes the missing positions.

    Called between steps, under the generator's lock. A source that works in parallel with the steps
    returns None from `computed` until it is done."""

    def needs(self, new: NewSequence) -> int:
        """Free pages that `open` would reserve now."""

    def open(self, new: NewSequence) -> int:
        """Open the sequence. RequestError if its pages are not free."""

    def computed(self, sequence: int) -> int | None:
        """Committed positions of a sequence from `open`; None while they are still being fetched.
        Fewer than its tokens, unless `logits` has those of the last one. LoraError if fetching
        failed."""

    def logits(self, sequence: int) -> NDArray[np.float32] | None:
        """FP32 [vocabulary] of the last token of a sequence whose tokens are all committed, once;
        None for others."""


class OwnPrefill:
    """Fetches nothing: the boards compute the whole prompt."""

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    def needs(self, new: NewSequence) -> int:
        """See KvSource."""
        return new.pages

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        return self._cache.open(new.pages)

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        return self._cache.length(sequence)

    def logits(self, sequence: int) -> None:
        """See KvSource."""
