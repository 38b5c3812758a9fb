"""K and V that a request brings from another engine of the same model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import LoraError
from lora_sdk.engine.handover import Handover
from lora_sdk.engine.kv_source import KvSource, NewSequence
from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, pages_for
from lora_sdk.kv.kv_transfer import of_pages
from lora_sdk.prefill.job import Job, Part

if TYPE_CHECKING:
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.prefill.sender import Sender

PART_PAGES = 8  # written at once

_log = logging.getLogger("lora_sdk.engine")


@dataclass(frozen=True)
class MigratedKv:
    """What a request takes along. `kv`: of all its tokens but the last, in the boards' column order
    and with the boards' bytes; None if they must be computed again. `weights`: digest of the
    adapter that computed them."""

    kv: KvArrays | None
    weights: bytes | None


class MigratedKvSource:
    """A KvSource before another one, for sequences that bring K and V."""

    def __init__(
        self, inner: KvSource, cache: KvCache, transfer: KvTransfer, sender: Sender
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._transfer = transfer
        self._sender = sender
        self._handovers: dict[int, Handover] = {}

    def needs(self, new: NewSequence) -> int:
        """See KvSource."""
        return self._inner.needs(new) if new.kv is None else new.pages

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        if new.kv is None:
            sequence = self._inner.open(new)
            self._handovers.pop(sequence, None)  # of a sequence of this number that was closed
            return sequence
        sequence = self._cache.open(new.pages)
        self._cache.grow(sequence, new.kv.positions)
        wanted = partial(self._is_open, sequence, self._cache.identity(sequence))
        tokens = list(new.tokens[: new.kv.positions])
        job = Job(tokens, None, wanted, resumed=True, done=True)
        self._handovers[sequence] = Handover(
            job, sequence, self._cache, self._transfer, self._sender, keep=new.keep
        )
        for part in _parts(new.kv):
            job.give(part)
        return sequence

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        handover = self._handovers.get(sequence)
        if handover is None:
            return self._inner.computed(sequence)
        try:
            ended = handover.advance()
        except LoraError as error:  # of the boards: the next step shows it again
            _log.warning("K and V of a request that was moved: %s; they are computed again", error)
            ended = False
        if ended is None:
            return None
        del self._handovers[sequence]
        return len(handover.job.tokens) if ended else 0

    def logits(self, sequence: int) -> NDArray[np.float32] | None:
        """See KvSource."""
        return self._inner.logits(sequence)

    def _is_open(self, sequence: int, known: object) -> bool:
        return self._cache.identity(sequence) is known


def _parts(kv: KvArrays) -> list[Part]:
    starts = range(0, pages_for(kv.positions), PART_PAGES)
    return [Part(0, s * PAGE_POSITIONS, of_pages(kv, s, PART_PAGES)) for s in starts]
