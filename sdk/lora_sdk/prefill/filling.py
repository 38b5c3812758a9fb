"""K and V of one prompt on their way from a worker into reserved pages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lora_sdk.kv.kv_transfer import of_pages
from lora_sdk.kv.pages import PAGE_POSITIONS, pages_for
from lora_sdk.prefill.job import joined_parts

if TYPE_CHECKING:
    from lora_host.placing import Range
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.prefill.job import Job, Part
    from lora_sdk.prefill.sender import Sender


class Filling:
    """Parts are written as they come, beside the steps of other sequences: no step reads the pages.
    The boards' sums are taken between steps, of one part a poll.

    A `PendingWrite` of the cache, which stops it before the pages get other contents."""

    def __init__(
        self,
        job: Job,
        pages: Sequence[int],
        transfer: KvTransfer,
        sender: Sender,
        keep: bool = False,
        held: int = 0,
    ) -> None:
        """Before the job's first part. `pages`: for all tokens of the job, of which the first
        `held` hold theirs already. `keep` a copy of K and V for a recovery: the boards would
        compute others."""
        self.job = job
        self.failure: Exception | None = None
        self._transfer = transfer
        self._pages = pages
        self._held = held
        self._kept: list[Part] | None = [] if keep else None
        self._written: deque[list[Range]] = deque()  # sums not compared yet
        self._checked = 0  # parts
        self._stopped = False
        self._writing = threading.Lock()
        job.on_part = lambda: sender.put(self._write)

    def poll(self) -> bool | None:
        """Compare what has been written since the last call. True: the pages hold all; False: the
        worker failed, or the boards lost what was written; None: not yet. LoraError of the boards.
        After False or an error nothing more is written."""
        finished = self.job.done  # before looking for parts
        if self._stopped or (finished and not self._complete):
            self.stop()
            return False
        try:
            if self.failure is not None:
                raise self.failure
            if self._written:
                self._transfer.check(self._written.popleft())
                self._checked += 1
        except BaseException:
            self.stop()
            raise
        if not finished or self._checked < self.job.given:
            return None
        return True

    def kept(self) -> KvArrays | None:
        """The copy, once all has come; None where none was wanted."""
        return None if self._kept is None else joined_parts(self._kept)

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

    def _write(self) -> None:
        """The next part. Called by the sender."""
        with self._writing:
            if self._stopped or self.failure is not None or not self.job.parts:
                return
            part = self.job.parts.popleft()
            first = part.first_position // PAGE_POSITIONS
            count = pages_for(part.kv.positions)
            skipped = min(count, max(0, self._held - first))
            kv = of_pages(part.kv, skipped, count - skipped) if skipped else part.kv
            pages = self._pages[first + skipped : first + count]
            try:
                written = self._transfer.write(
                    pages, kv, part.first_layer, lambda: not self._stopped
                )
            except Exception as error:  # told by the next poll
                self.failure = error
                return
            if self._kept is not None:
                self._kept.append(part)
            self._written.append(written)
