"""Selects the running sequences and their tokens in the next step.

First come, first served. A request starts once there are pages for its prompt and one for each
running sequence to grow into. If pages run out later, the youngest sequence is preempted, or all
beams of the youngest search: it gives back what it holds and waits at the front of the queue, to be
rebuilt from its prompt and its emitted tokens. Every decoding sequence gets one row of each step
while there are rows. The remaining rows go to prompts, oldest first; while a stream decodes, no
more of them than its pace allows. Prompts always have a minimum share.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import AdapterError, LoraError, RequestError
from lora_sdk.engine.beams import BeamGroup, beam_samples, resume_from
from lora_sdk.engine.kv_source import KvSource, MigratedKv, NewSequence, OwnPrefill
from lora_sdk.engine.prefill_budget import PrefillBudget
from lora_sdk.engine.requests import Request, Sample, positions_of
from lora_sdk.kv.kvcache import PAGE_POSITIONS, KvCache, pages_for

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.spec.loop import SequenceDraft
    from lora_sdk.step.verify import Tree


@dataclass
class SequenceGroup:
    """Samples of one request that share one prefill: of its prompt, and of the tokens emitted by a
    sample that was preempted, or by all beams of a search. `arrival` orders requests. `weights`:
    digest of the adapter that computed those tokens. `kv`: of the first of those tokens, but not
    the last, brought from another engine or kept by the host."""

    request: Request
    samples: list[Sample]
    arrival: int
    weights: bytes | None = None
    kv: KvArrays | None = None

    @cached_property
    def tokens(self) -> list[int]:
        """The tokens to be computed before the samples differ, or before a new one."""
        return [*self.request.tokens, *self.samples[0].output]

    def pages(self) -> int:
        """Max pages that the group may need."""
        copies = self.request.search is not None  # one a beam and step
        return self._pages(pages_for(self._positions) + copies)

    def pages_each(self) -> int:
        """Pages of a sequence until its next token is emitted and has a place."""
        search = self.request.search
        emitted = self.samples[0].output if search is None else search.beams[0].tokens
        return pages_for(min(len(self.request.tokens) + len(emitted) + 1, self._positions))

    def pages_now(self) -> int:
        """Pages until every sample has emitted a token."""
        return self._pages(self.pages_each())

    @property
    def _positions(self) -> int:
        return max(positions_of(self.request.tokens, s.limit) for s in self.samples)

    def _pages(self, each: int) -> int:
        return each + (len(self.samples) - 1) * (each - len(self.tokens) // PAGE_POSITIONS)

    @cached_property
    def sequence(self) -> NewSequence:
        """The sequence of its prefill."""
        request, params = self.request, self.request.params
        unknown = len(request.tokens) - len(request.prompt_logprobs)
        return NewSequence(
            self.tokens,
            self.pages_now(),
            params.adapter,
            params.cache_salt,
            recompute=request.pool is not None
            or (params.prompt_logprobs is not None and unknown > 0),
            drafted=request.search is None,
            kv=self.kv,
            keep=request.prefill is not None,
            prefill_id=None if self.samples[0].output else params.prefill_id,
            note_prefill=request.note_prefill,
        )


@dataclass(eq=False)  # compared by identity
class RunningSequence:
    """A running sequence. `computed`: number of its tokens, prompt and output, whose K and V are
    committed. `fetching`: its KvSource is still fetching K and V. `pages`: those that it and each
    sibling begin with."""

    request: Request
    sample: Sample
    sequence: int
    arrival: int
    computed: int = 0
    fetching: bool = False
    siblings: list[Sample] = field(default_factory=list)  # forked once the prompt is computed
    pages: int = 0
    draft: SequenceDraft | None = None
    beams: BeamGroup[RunningSequence] | None = None  # its group: scheduled and ended as one

    @property
    def streaming(self) -> bool:
        """Whether somebody waits for each of its tokens."""
        return self.left == 1 and self.request.on_delta is not None

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is not fully computed yet."""
        return self.computed < len(self.request.tokens)

    @property
    def left(self) -> int:
        """Number of its tokens that are not computed yet."""
        return len(self.request.tokens) + len(self.sample.output) - self.computed

    @property
    def pending(self) -> int:
        """Its last token."""
        output = self.sample.output
        return output[-1] if output else self.request.tokens[-1]

    def tokens(self, count: int) -> list[int]:
        """The next `count` tokens to be computed."""
        prompt, output, start = self.request.tokens, self.sample.output, self.computed
        behind = max(0, start - len(prompt))
        found = prompt[start : start + count]
        return found + output[behind : behind + count - len(found)]


@dataclass(frozen=True)
class ScheduledChunk:
    """The next `count` tokens of a track, or with `tree` its pending token and drafts.
    `complete`: whether the last row's output is the next token."""

    track: RunningSequence
    count: int
    complete: bool
    tree: Tree | None = None

    def with_tree(self, tree: Tree) -> ScheduledChunk:
        """The same, with drafts behind the pending token."""
        return replace(self, tree=tree)

    @property
    def decoding(self) -> bool:
        """Whether it is the pending token of a sequence whose prompt is computed, not of a beam."""
        track = self.track
        started = not (track.prefilling or track.siblings)
        return self.complete and self.count == 1 and started and track.beams is None


class Scheduler:
    """The queue of requests and the sequences that run."""

    def __init__(
        self,
        cache: KvCache,
        row_limit: int,
        adapters: AdapterSlots | None = None,
        source: KvSource | None = None,
    ) -> None:
        """`source`: source of K and V for new sequences, None for their own prefill."""
        self._cache = cache
        self._source = source or OwnPrefill(cache)
        self._adapters = adapters
        self._row_limit = row_limit
        self._waiting: deque[SequenceGroup] = deque()
        self.running: list[RunningSequence] = []
        self.pace = PrefillBudget(row_limit)
        self._next_track = 0
        self._arrivals = 0
        self.changes = 0  # sequences that began or ended
        self.preempted = 0  # sequences that gave their pages back before their end

    @property
    def waiting(self) -> int:
        """Groups that have not started."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self.running and not self._waiting

    def submit(self, request: Request) -> None:
        """Queue a request. RequestError if it can never run."""
        size = self._cache.max_sequences
        samples = request.samples
        if request.search is not None:
            samples = beam_samples(request.search, samples[0])
            if len(samples) > size:
                raise RequestError(
                    f"beam_width is {len(samples)}; the boards have {size} sequences: use fewer "
                    "beams or a larger max_sequences"
                )
        self._arrivals += 1
        groups = self._groups(request, samples)
        for group in groups:
            if group.pages() > self._cache.total_pages:
                raise RequestError(
                    f"the request may need {group.pages()} KV pages of {PAGE_POSITIONS} positions, "
                    f"the boards have {self._cache.total_pages}; lower max_tokens, n or beam_width"
                )
        self._waiting.extend(groups)

    def _groups(self, request: Request, samples: list[Sample]) -> list[SequenceGroup]:
        """Beams and samples without a token share a prefill; samples that bring tokens do not."""
        size, arrival = self._cache.max_sequences, self._arrivals
        left = [sample for sample in samples if sample.finish_reason is None]
        if request.search is not None:
            resume_from(request.search, left)
        elif any(sample.output for sample in left):
            size = 1
        brought = request.migrated or MigratedKv(None, None)
        request.migrated = None
        return [
            SequenceGroup(request, left[i : i + size], arrival, brought.weights, brought.kv)
            for i in range(0, len(left), size)
        ]

    def drop_cancelled(self) -> list[Request]:
        """Remove cancelled requests, running or waiting, and return them."""
        cancelled = [request for request in self.requests() if request.cancelled]
        for request in cancelled:
            self.remove(request)
        return cancelled

    def remove(self, request: Request) -> None:
        """Remove one request, running or waiting."""
        for track in [t for t in self.running if t.request is request]:
            self.end(track)
        self._waiting = deque(g for g in self._waiting if g.request is not request)

    def admit(self) -> None:
        """Start waiting groups, oldest first, while sequences, pages and adapter slots are free."""
        while self._waiting:
            group = self._waiting[0]
            free = self._cache.free_sequences - sum(len(t.siblings) for t in self.running)
            if len(group.samples) > free or not self.has_slot(group.request):
                return
            try:
                if not self._fits(group):
                    return
                self._start(group)
            except LoraError as error:
                self.remove(group.request)
                group.request.fail(error)

    def _fits(self, group: SequenceGroup) -> bool:
        """Whether there are pages for the group, and one for each running sequence to grow into."""
        self._check_weights(group)
        return self._source.needs(group.sequence) + len(self.running) <= self._cache.free_pages

    def _check_weights(self, group: SequenceGroup) -> None:
        """AdapterError if the adapter of a preempted sequence is another one now."""
        name = group.request.params.adapter
        if group.weights is None or name is None or self._adapters is None:
            return
        if self._adapters.digest(name) != group.weights:
            raise AdapterError(
                f"adapter {name!r} was loaded again with other weights while a request that uses "
                "it waited for KV pages; submit the request again"
            )

    def has_slot(self, request: Request) -> bool:
        """Whether the request's adapter is on the boards or could be loaded now."""
        return self._adapters is None or self._adapters.has_room(request.params.adapter)

    def blocked(self) -> Request | None:
        """The first waiting request if no running request could free what it needs."""
        if self.running or not self._waiting:
            return None
        return self._waiting[0].request

    @property
    def free_rows(self) -> int:
        """Max rows of the next step."""
        return min(self._row_limit, self._cache.free_slots)

    def fetch(self) -> list[tuple[RunningSequence, NDArray[np.float32]]]:
        """Poll the source for sequences that wait for K and V. A failure ends the request. Returns
        those of which every token is computed, with the last one's logits, FP32 [vocabulary]."""
        complete = []
        for track in tuple(self.running):
            if not track.fetching:
                continue
            try:
                computed = self._source.computed(track.sequence)
            except LoraError as error:
                self.remove(track.request)
                track.request.fail(error)
                continue
            if computed is not None:
                track.computed, track.fetching = computed, False
                logits = self._source.logits(track.sequence)
                track.request.note_cached(0 if logits is not None else computed)
                if logits is not None:
                    complete.append((track, logits))
        return complete

    def plan(self) -> list[ScheduledChunk]:
        """The slices of the next step, with at most `free_rows` rows in total."""
        budget = self.free_rows
        prompts: list[RunningSequence] = []
        others: list[RunningSequence] = []
        left: dict[RunningSequence, int] = {}
        for track in self.running:
            count = 0 if track.fetching else track.left
            if count:
                left[track] = count
                (others if count == 1 else prompts).append(track)
        waiting = sum([left[track] for track in prompts]) if prompts else 0
        share = min(self.pace.share, waiting)
        most = max(budget - share, min(1, budget))
        chosen = others if len(others) <= most else self._round_robin(others, most)
        counts = dict.fromkeys(chosen, 1)
        budget -= len(chosen)
        if prompts and any([track.streaming for track in chosen]):
            budget = min(budget, self.pace.prompt_rows(len(chosen)))
        for track in prompts:
            counts[track] = min(budget, left[track])
            budget -= counts[track]
        return [
            ScheduledChunk(track, counts[track], counts[track] == left[track])
            for track in left
            if counts.get(track)
        ]

    def fork(self, track: RunningSequence) -> list[RunningSequence]:
        """Start the siblings of a track whose prompt is computed. They share its prompt."""
        siblings, track.siblings = track.siblings, []
        share = track.computed // PAGE_POSITIONS
        started = []
        for sample in siblings:
            sequence = self._cache.fork(track.sequence, track.pages - share)
            draft = track.draft.fork() if track.draft is not None else None
            sibling = RunningSequence(
                track.request, sample, sequence, track.arrival, track.computed, draft=draft
            )
            sibling.beams = track.beams
            started.append(sibling)
        self.running.extend(started)
        self.changes += len(started)
        if track.beams is not None:
            track.beams.tracks.extend(started)
        return started

    def end(self, track: RunningSequence) -> None:
        """Remove a track and free its sequence."""
        self.running.remove(track)
        self.changes += 1
        if track.draft is not None:
            track.draft.close()
        if self._cache.is_open(track.sequence):
            self._cache.close(track.sequence)

    def searches(self) -> list[BeamGroup[RunningSequence]]:
        """The running beam searches."""
        found: dict[int, BeamGroup[RunningSequence]] = {}
        for track in self.running:
            if track.beams is not None:
                found[id(track.beams)] = track.beams
        return list(found.values())

    def youngest(self) -> list[RunningSequence]:
        """The sequence to be preempted, of the request that came last, or all beams of its search.
        Empty if nothing else runs."""
        if not self.running:
            return []
        last = max(reversed(self.running), key=lambda track: track.arrival)
        tracks = [last] if last.beams is None else last.beams.tracks
        return [] if len(tracks) == len(self.running) else list(tracks)

    def preempt(self, tracks: Sequence[RunningSequence]) -> None:
        """Give back all that a sequence or all beams of a search hold: pages, rows, adapter slot,
        draft. They are rebuilt from the prompt and the emitted tokens, before any sequence that
        waits now."""
        self._hand_back(tracks)
        self.preempted += len(tracks)

    def _hand_back(self, tracks: Sequence[RunningSequence]) -> None:
        track = tracks[0]
        name = track.request.params.adapter
        weights = None
        if name is not None and self._adapters is not None:
            weights = self._adapters.digest(name)
        samples = [sample for one in tracks for sample in (one.sample, *one.siblings)]
        kv = self._cache.imported(track.sequence)
        for one in tracks:
            self.end(one)
        if track.request.search is not None:
            resume_from(track.request.search, samples)
        group = SequenceGroup(track.request, samples, track.arrival, weights)
        if kv is not None and kv.positions < len(group.tokens):
            group.kv = kv
        self._waiting.appendleft(group)

    def compute_again(self) -> None:
        """What the boards hold of every running sequence is of no use: the scheduler computes it
        from its tokens, first come, first served."""
        for track in sorted(self.running, key=lambda one: one.arrival, reverse=True):
            if track in self.running:  # else ended with the other beams of its search
                self._hand_back([track] if track.beams is None else track.beams.tracks)

    def abandon(self) -> list[Request]:
        """Remove all requests and return them."""
        requests = self.requests()
        for request in requests:
            self.remove(request)
        return requests

    def requests(self) -> list[Request]:
        """Running and waiting requests, without duplicates."""
        found: dict[int, Request] = {}
        for track in self.running:
            found[id(track.request)] = track.request
        for group in self._waiting:
            found[id(group.request)] = group.request
        return list(found.values())

    def _start(self, group: SequenceGroup) -> None:
        request = group.request
        sequence = self._open(group.sequence)
        self._waiting.popleft()
        if request.started is None:
            request.started = time.monotonic()
        leader, *siblings = group.samples
        track = RunningSequence(
            request, leader, sequence, group.arrival, fetching=True, siblings=siblings
        )
        track.pages = group.pages_each()
        if request.search is not None:
            track.beams = BeamGroup(request.search, [track])
        self.running.append(track)
        self.changes += 1

    def _open(self, new: NewSequence) -> int:
        adapter = new.adapter
        sequence = self._source.open(new)
        if adapter is not None and self._adapters is not None:
            try:
                self._adapters.attach(sequence, adapter)
            except BaseException:
                self._cache.close(sequence)
                raise
        return sequence

    def _round_robin(self, ready: list[RunningSequence], budget: int) -> list[RunningSequence]:
        """The tracks that get a row, in rotation: there are too few rows for all."""
        count = len(ready)
        start = self._next_track % count
        self._next_track = start + budget
        return [ready[(start + i) % count] for i in range(budget)]
