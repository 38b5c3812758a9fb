"""Pages for the rows of the next step. If there are too few, the youngest sequences wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lora_host.errors import RequestError
from lora_sdk.engine.scheduler import RunningSequence, ScheduledChunk, Scheduler
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.step.stepper import Stepper

_EVICTED = 4  # cached pages that the boards' own loop may take at a time


class BlockAllocation:
    """Grants pages to running sequences. Cached pages are evicted before a sequence is preempted,
    and drafts are left out before that."""

    def __init__(self, scheduler: Scheduler, stepper: Stepper, cache: KvCache) -> None:
        self._scheduler = scheduler
        self._stepper = stepper
        self._cache = cache

    def granted(self, slices: list[ScheduledChunk]) -> list[ScheduledChunk]:
        """The slices whose rows have pages; the tracks of the others are preempted.

        RequestError if the only running sequence has none: sequences of the token API, which are
        never preempted, hold them."""
        while (lacking := self._lacking(slices)) and lacking > self._cache.free_pages:
            if self._cache.leaving:
                self._stepper.flush()
            elif any(chunk.tree is not None for chunk in slices):
                slices = [replace(chunk, tree=None) for chunk in slices]
            else:
                self._preempt_youngest()
                running = {id(track) for track in self._scheduler.running}
                slices = [chunk for chunk in slices if id(chunk.track) in running]
        return slices

    def reorder(self) -> None:
        """Let the sequences of beam searches continue those that their beams do, with pages for the
        copies. RequestError as for `granted`."""
        while True:
            waiting = [group for group in self._scheduler.searches() if not group.reordered]
            if not waiting:
                return
            if self._cache.can_reorder(waiting[0].moves()):
                waiting[0].reorder(self._cache)
            elif self._cache.leaving:
                self._stepper.flush()
            else:
                self._preempt_youngest()

    def tokens(self, track: RunningSequence, wanted: int) -> int:
        """How many of `wanted` tokens the boards' own loop may decode now."""
        return min(wanted, self._cache.room(track.sequence, _EVICTED))

    def _lacking(self, slices: Sequence[ScheduledChunk]) -> int:
        cache, pages = self._cache, 0
        for chunk in slices:
            rows = chunk.count if chunk.tree is None else len(chunk.tree.tokens)
            sequence = chunk.track.sequence
            copies = len(chunk.track.siblings) if chunk.complete else 0
            pages += cache.lacking(sequence, rows, copies)
        return pages

    def _preempt_youngest(self) -> None:
        victims = self._scheduler.youngest()
        if not victims:
            raise RequestError(
                f"no room for the request: {self._cache.free_pages} KV pages are free and open "
                "sequences hold the others; release sequences"
            )
        self._scheduler.preempt(victims)
