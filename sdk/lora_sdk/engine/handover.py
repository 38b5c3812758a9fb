"""One prompt's K and V on their way from a worker into the pages of a sequence."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from lora_sdk.kv.kv_sequence import PAGE_POSITIONS, pages_for
from lora_sdk.prefill.job import joined_parts

if TYPE_CHECKING:
    from lora_host.placing import Range
    from lora_sdk.engine.sender import Sender
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.prefill.job import Job, Part


class Handover:
    """Parts are written as they come, beside the steps of other sequences: no step reads the pages.
    The boards' sums are taken between steps, of one part a poll. The sequence stays empty until all
    parts are on the boards and their sums are right.

    A `PendingWrite` of the cache, which stops it before the pages get other contents."""

    def __init__(
        self,
        job: Job,
        sequence: int,
        cache: KvCache,
        transfer: KvTransfer,
        sender: Sender,
        keep: bool = False,
    ) -> None:
        """Before the job's first part. `sequence` is empty and has pages for all tokens of the job.
        `keep` a copy of K and V for a recovery: the boards would compute others."""
        self.job = job
        self._sequence = sequence
        self._cache = cache
        self._transfer = transfer
        self._pages = cache.pages(sequence)
        self._kept: list[Part] | None = [] if keep else None
        self._written: deque[list[Range]] = deque()  # sums not compared yet
        self._checked = 0  # parts
        self._failure: Exception | None = None
        self._stopped = False
        self._writing = threading.Lock()
        cache.fills.begin(sequence, self)
        job.on_part = lambda: sender.put(self._write)

    def advance(self) -> bool | None:
        """Compare what has been written since the last call. True: the tokens are committed; False:
        the worker failed, or the boards lost what was written; None: not yet. LoraError of the
        boards."""
        finished = self.job.done  # before looking for parts
        if self._stopped or (finished and not self._complete):
            return self._give_up()
        try:
            if self._failure is not None:
                raise self._failure
            if self._written:
                self._transfer.check(self._written.popleft())
                self._checked += 1
        except BaseException:
            self._give_up()
            raise
        if not finished or self._checked < self.job.given:
            return None
        kept = None if self._kept is None else joined_parts(self._kept)
        self._cache.fills.end(self._sequence)
        self._cache.begin(self._sequence, self.job.tokens, kept)
        return True

    def stop(self) -> None:
        """See PendingWrite."""
        self._stopped = True
        with self._writing:
            self.job.on_part = self.job.parts.clear
            self.job.parts.clear()
            self._written.clear()
            self._kept = None

    @property
    def _complete(self) -> bool:
        return self.job.error is None and (self.job.logits is not None or self.job.resumed)

    def _give_up(self) -> bool:
        self.stop()
        self._cache.fills.end(self._sequence)
        return False

    def _write(self) -> None:
        """The next part. Called by the sender."""
        with self._writing:
            if self._stopped or self._failure is not None or not self.job.parts:
                return
            part = self.job.parts.popleft()
            first = part.first_position // PAGE_POSITIONS
            pages = self._pages[first:][: pages_for(part.kv.positions)]
            try:
                written = self._transfer.write(
                    pages, part.kv, part.first_layer, lambda: not self._stopped
                )
            except Exception as error:  # told by the next poll
                self._failure = error
                return
            if self._kept is not None:
                self._kept.append(part)
            self._written.append(written)
