"""One prompt's K and V on their way from a worker into the pages of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.prefill.filling import Filling

if TYPE_CHECKING:
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.prefill.job import Job
    from lora_sdk.prefill.sender import Sender


class Handover(Filling):
    """The sequence stays empty until all parts are on the boards and their sums are right."""

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
        `keep` as for Filling."""
        super().__init__(job, cache.pages(sequence), transfer, sender, keep)
        self._sequence = sequence
        self._cache = cache
        cache.fills.begin(sequence, self)

    def advance(self) -> bool | None:
        """As `poll`; True: the tokens are committed."""
        try:
            ended = self.poll()
        except BaseException:
            self._cache.fills.end(self._sequence)
            raise
        if ended is not None:
            kept = self.kept() if ended else None
            self._cache.fills.end(self._sequence)
            if ended:
                self._cache.begin(self._sequence, self.job.tokens, kept)
        return ended
