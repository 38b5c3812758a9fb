"""One prompt's K and V on their way from a worker into the pages of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.core.kv_sequence import PAGE_POSITIONS, pages_for
from lora_sdk.prefill.job import joined_parts

if TYPE_CHECKING:
    from lora_sdk.core.kv_transfer import KvTransfer
    from lora_sdk.core.kvcache import KvCache
    from lora_sdk.prefill.job import Job, Part


class Handover:
    """Parts are written between steps, one a poll, so that other sequences decode meanwhile. The
    sequence stays empty until all of them are on the boards and their checksums are right."""

    def __init__(
        self, job: Job, sequence: int, cache: KvCache, transfer: KvTransfer, keep: bool
    ) -> None:
        """`sequence` is empty and has pages for all tokens of the job. `keep` a copy of K and V for
        a recovery: the boards would compute others."""
        self._kept: list[Part] | None = [] if keep else None
        self.job = job
        self._sequence = sequence
        self._cache = cache
        self._transfer = transfer
        self._losses = cache.losses

    def advance(self) -> bool | None:
        """Hand over what has come since the last call. True: the tokens are committed; False: the
        worker failed, or the boards lost what was written; None: not yet. LoraError of the
        boards."""
        if self._cache.losses != self._losses:
            return False
        finished = self.job.done  # before looking for parts
        if self.job.parts:
            self._write(self.job.parts.popleft())
        if not finished or self.job.parts:
            return None
        if self.job.error is not None or (self.job.logits is None and not self.job.resumed):
            return False
        kept = None if self._kept is None else joined_parts(self._kept)
        self._cache.begin(self._sequence, self.job.tokens, kept)
        return True

    def _write(self, part: Part) -> None:
        first = part.first_position // PAGE_POSITIONS
        pages = self._cache.pages(self._sequence)[first:][: pages_for(part.kv.positions)]
        if self._kept is not None:
            self._kept.append(part)
        self._transfer.check(self._transfer.write(pages, part.kv, part.first_layer))
