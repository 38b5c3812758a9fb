"""The step loop: from requests to rows, from rows to tokens, from tokens to deltas."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import LoraError, ModelError, RequestError, TransportError
from lora_sdk.engine.beams import BeamGroup, take_hypotheses
from lora_sdk.engine.block_allocation import BlockAllocation
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.engine.plain_draws import plain_draws
from lora_sdk.engine.requests import Request
from lora_sdk.engine.scheduler import RunningSequence, ScheduledChunk, Scheduler
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.sampling.beam_search import Beam
from lora_sdk.sampling.logprobs import PositionLogprobs, position_logprobs
from lora_sdk.step.results import Delta
from lora_sdk.step.step import Row, StepResult, build_rows
from lora_sdk.step.stepper import Stepper
from lora_sdk.step.verify import Tree, choose_for_row, walk

if TYPE_CHECKING:
    from lora_sdk.engine.weight_watch import WeightWatch
    from lora_sdk.spec.loop import Speculation

_POLL_SECONDS = 0.0005  # between polls while K and V of all sequences are being fetched


class StepLoop:
    """Runs the scheduler's requests, one step per call. Not thread-safe."""

    def __init__(
        self,
        scheduler: Scheduler,
        stepper: Stepper,
        cache: KvCache,
        greedy: GreedyLoop | None,
        speculation: Speculation | None,
        must_return: Callable[[], bool],
        weights: WeightWatch | None = None,
    ) -> None:
        """`must_return`: whether the boards' own greedy loop must end, because other work waits.
        `weights`: None where nobody watches them."""
        self._scheduler = scheduler
        self._stepper = stepper
        self._cache = cache
        self._greedy = greedy
        self._speculation = speculation
        self._must_return = must_return
        self._weights = weights
        if weights is not None:
            weights.join(scheduler)
        self._grants = BlockAllocation(scheduler, stepper, cache)
        self._losses = cache.losses  # those that the scheduler knows of
        self._plain_step = False  # the next step has no drafted rows
        self.new_tokens = 0
        self._affected: list[Request] = []  # the requests that a failure now would end

    def submit(self, request: Request) -> None:
        """Queue a request. It fails if it can never run."""
        if self._weights is not None:
            request.on_finish = self._weights.note_end
        try:
            self._scheduler.submit(request)
        except RequestError as error:
            request.fail(error)

    def remove(self, request: Request) -> None:
        """Remove a request, running or waiting."""
        self._scheduler.remove(request)

    def watch_weights(self, idle_for: float | None = None) -> None:
        """Between steps, or after so many seconds without requests: sum weights on the boards."""
        if self._weights is not None and idle_for is None:
            self._weights.between_steps()
        elif self._weights is not None and self._scheduler.idle:
            self._weights.idle_for(idle_for or 0.0)

    def tracks(self, request: Request) -> list[RunningSequence]:
        """The running sequences of a request."""
        return [track for track in self._scheduler.running if track.request is request]

    def fail_all(self, error: BaseException) -> None:
        """End every request with an error."""
        for request in self._scheduler.abandon():
            request.fail(error)

    def advance(self, one_step: bool) -> bool:
        """See Generator.advance."""
        self._affected = []
        try:
            try:
                return self._advance(one_step)
            except LoraError as error:  # the boards' tables are as before the step
                if not self._stepper.again(error):
                    raise
                return True
        except LoraError as error:
            affected = self._affected or self._scheduler.requests()
            for request in {id(one): one for one in affected}.values():  # beams share theirs
                self._drop(request, error)
            raise
        except BaseException as error:  # the step may or may not have run
            self._cache.reset()
            self.fail_all(error if isinstance(error, Exception) else _interrupted(error))
            raise

    def _advance(self, one_step: bool) -> bool:
        self._cancel()
        if self._weights is not None:
            self._weights.between_steps()
        self._admit()
        for fetched in self._scheduler.fetch():
            self._first_token(*fetched)
        if self._scheduler.idle:
            return False
        if self._cache.losses != self._losses:
            self._losses = self._cache.losses
            self._scheduler.compute_again()
            return True
        track = None if one_step else self._lone_track()
        max_tokens = 0 if track is None else self._grants.tokens(track, self._plain_tokens(track))
        if track is not None and max_tokens and self._greedy is not None:
            self._run_greedy(track, self._greedy, max_tokens)
        elif self._scheduler.running:
            changes = self._scheduler.changes
            self._run_step()
            while not one_step and self._same_again(changes):
                self._run_step()
        return True

    def _same_again(self, changes: int) -> bool:
        """Whether the next step is one more of the sequences that run, none of which began or ended
        since `changes` was taken. The weights have been looked at then."""
        running = self._scheduler.running
        if self._scheduler.changes != changes or self._scheduler.waiting or self._must_return():
            return False
        for track in running:
            if track.fetching or track.request.cancelled:
                return False
        if len(running) == 1 and not running[0].request.params.needs_logits:
            return False  # boards may go on by themselves
        self._affected = []
        if self._weights is not None:
            self._weights.between_steps()
        return self._scheduler.changes == changes and self._cache.losses == self._losses

    # --- requests in and out --------------------------------------------------------------------

    def _cancel(self) -> None:
        """Cancelled requests end before anything else runs."""
        for request in self._scheduler.drop_cancelled():
            request.end_cancelled()

    def _admit(self) -> None:
        self._scheduler.admit()
        request = self._scheduler.blocked()
        if request is None:
            return
        self._affected = [request]
        self._stepper.flush()  # makes slots and pages that were just released free
        self._scheduler.admit()
        request = self._scheduler.blocked()
        if request is not None:
            self._drop(request, self._no_room(request))

    def _no_room(self, request: Request) -> RequestError:
        if not self._scheduler.has_slot(request):
            return RequestError(
                f"no room for adapter {request.params.adapter!r}: every slot is used by an "
                "open sequence; release sequences or open with a larger max_adapters"
            )
        return RequestError(
            f"no room for the request: {self._cache.free_pages} KV pages and "
            f"{self._cache.free_sequences} sequences are free; release sequences"
        )

    def _drop(self, request: Request, error: BaseException) -> None:
        """Fail one request. The others continue. Damaged weights are to blame where there are."""
        found = isinstance(error, ModelError) and self._weights is not None
        if found and self._weights is not None and self._weights.examine():
            return
        request.fail(error)
        self._scheduler.remove(request)

    def _deliver(self, request: Request, delta: Delta) -> None:
        try:
            request.deliver(delta)
        except BaseException as error:  # a callback's failure ends only its own request
            self._drop(request, error)

    # --- one step -------------------------------------------------------------------------------

    def _run_step(self) -> None:
        slices = self._plan()
        if not slices:
            self._check_slots()
            time.sleep(_POLL_SECONDS)
            return
        self._affected = []
        rows: list[Row] = []
        parts: list[range] = []
        for chunk in slices:
            self._affected.append(chunk.track.request)
            first = len(rows)
            rows += self._rows(chunk)
            parts.append(range(first, len(rows)))
        began = time.perf_counter()
        try:
            result = self._stepper.run(rows)
        except ModelError as error:
            if any(chunk.tree is not None for chunk in slices):
                self._plain_step = True  # the value may belong to a draft, not to the request
            else:
                self._fail_owner(slices, error)
            return
        self._scheduler.pace.note(len(rows), time.perf_counter() - began)
        drawn = plain_draws(slices, result, rows, parts)
        for chunk, part in zip(slices, parts, strict=True):
            if chunk.track not in self._scheduler.running:  # its request failed above
                continue
            if chunk.tree is not None:
                self._after_tree(chunk.track, chunk.tree, result, rows, part)
            else:
                self._cache.commit(chunk.track.sequence, [rows[i].slot for i in part])
                self._after_slice(chunk, result, rows, part, drawn)

    def _plan(self) -> list[ScheduledChunk]:
        self._affected, searching = [], False
        for track in self._scheduler.running:
            if track.beams is not None:
                searching = True
            elif self._speculation is not None:
                self._speculation.join(track)
            self._affected.append(track.request)
        if searching:
            self._grants.reorder()
        slices = self._scheduler.plan()
        if not slices:  # every slot waits for its commit to be carried
            self._stepper.flush()
            slices = self._scheduler.plan()
        plain, self._plain_step = self._plain_step, False
        if self._speculation is not None and not plain:
            slices = self._speculation.extend(slices, self._scheduler.free_rows)
        return self._grants.granted(slices)

    def _check_slots(self) -> None:
        """RequestError if no row is free until the caller of the token API commits."""
        if not self._scheduler.free_rows:
            raise RequestError(
                "no room for a row: every scratch slot holds an uncommitted row of an open "
                "sequence; commit or drop them"
            )

    def _fail_owner(self, slices: Sequence[ScheduledChunk], error: ModelError) -> None:
        """End the request whose row has a non-finite value. The rows of the others were dropped too
        and run again in the next step."""
        if error.row is None:
            raise error
        owners = [chunk.track.request for chunk in slices for _ in range(chunk.count)]
        request = owners[error.row]
        self._drop(request, ModelError(f"{request.name}: {error}", row=error.row))

    def _rows(self, chunk: ScheduledChunk) -> list[Row]:
        track = chunk.track
        hidden = self._speculation is not None and self._speculation.wants_hidden
        if chunk.tree is not None:
            every = range(len(chunk.tree.tokens))
            plain = not track.request.params.needs_logits
            return build_rows(
                self._cache,
                track.sequence,
                chunk.tree.tokens,
                chunk.tree.parents,
                logits=() if plain else every,
                argmax=every if plain else (),
                hidden=every if hidden else (),
            )
        pool = track.request.pool
        last = [chunk.count - 1] if chunk.complete and pool is None else []
        params = track.request.params
        logits: Collection[int] = last if params.needs_logits else ()
        if params.prompt_logprobs is not None and track.prefilling:
            logits = range(chunk.count)
        return build_rows(
            self._cache,
            track.sequence,
            track.tokens(chunk.count),
            logits=logits,
            argmax=() if logits else last,
            hidden=range(chunk.count) if hidden else (),
            final=() if pool is None else pool.wanted(track.computed, chunk.count),
        )

    # --- results of a step ----------------------------------------------------------------------

    def _after_slice(
        self,
        chunk: ScheduledChunk,
        result: StepResult,
        rows: Sequence[Row],
        part: range,
        drawn: Mapping[int, int],
    ) -> None:
        track = chunk.track
        if self._speculation is not None:
            self._speculation.note_hidden(track, result, part)
        try:
            self._note_prompt(track, result, rows, part)
            track.computed += chunk.count
            if not chunk.complete:
                return
            if track.beams is not None:
                assert result.logits is not None  # requested by this row
                logits = result.logits[result.rows.index(part[-1])]
                self._after_beam(track, track.beams, logits)
            elif track.request.pool is not None:
                self._scheduler.end(track)
                self._deliver(track.request, track.sample.end())
            else:
                started = self._scheduler.fork(track) if track.siblings else ()
                token = drawn.get(part[-1])
                if token is not None:
                    self._accept(track, token, None)
                    return
                for one in [track, *started]:
                    self._emit(one, result, part[-1], rows[part[-1]])
        except LoraError as error:
            self._drop(track.request, error)

    def _first_token(self, track: RunningSequence, logits: NDArray[np.float32]) -> None:
        """Go on after a prompt that was computed elsewhere, to its last token's logits."""
        self._affected = [track.request]
        try:
            if track.beams is not None:
                self._after_beam(track, track.beams, logits)
                return
            for one in [track, *self._scheduler.fork(track)]:
                sample, prompt = one.sample, track.request.tokens
                chosen = sample.sampler.choose(logits, track.computed, prompt, sample.output)
                self._accept(one, *chosen)
        except LoraError as error:
            self._drop(track.request, error)

    def _after_beam(
        self, track: RunningSequence, group: BeamGroup[RunningSequence], logits: NDArray[np.float32]
    ) -> None:
        """Once all beams of the group have run: continue the search, or end the request."""
        if group.rebuilding:  # what the beams have in common is computed
            self._scheduler.fork(track)
            group.assign()
            return
        if not group.collect(track, logits):
            return
        group.advance()
        track.request.last_token = self._stepper.progress
        if group.search.ended:
            self._finish_beams(track.request, group.search.results())
            return
        if self._scheduler.fork(track):  # at the prompt's end: the sequences of all beams
            group.assign()
        else:
            group.reordered = False  # before its next rows

    def _finish_beams(self, request: Request, found: Sequence[Beam]) -> None:
        """Deliver the hypotheses, the best first."""
        self._scheduler.remove(request)
        take_hypotheses(request, found)
        for sample, beam in zip(request.samples, found, strict=True):
            for token in beam.tokens:
                self._deliver(request, sample.accept(token))
                if request.cancelled and not request.ended:
                    request.end_cancelled()
                if request.ended:
                    return

    def _after_tree(
        self,
        track: RunningSequence,
        tree: Tree,
        result: StepResult,
        rows: Sequence[Row],
        part: range,
    ) -> None:
        """Emit the accepted tokens one by one. The text may end inside the verified block."""
        assert self._speculation is not None  # it made the tree
        sample, request = track.sample, track.request
        try:
            verified = walk(
                result, rows, part.start, sample.sampler, tree, request.tokens, sample.output[:-1]
            )
        except LoraError as error:
            self._drop(request, error)
            return
        self._speculation.count(track, tree, len(verified.tokens))
        self._speculation.note_hidden(
            track, result, [part.start + node for node in verified.accepted]
        )
        self._cache.commit(track.sequence, verified.slots)
        track.computed += len(verified.slots)
        for index, token in enumerate(verified.tokens):
            logprobs = None if verified.logprobs is None else verified.logprobs[index]
            self._accept(track, token, logprobs)
            if sample.finish_reason is not None or request.cancelled or request.ended:
                return

    def _note_prompt(
        self, track: RunningSequence, result: StepResult, rows: Sequence[Row], part: range
    ) -> None:
        """What the request asks of its prompt: the rows' final states; log probabilities of tokens,
        each from the row before it."""
        request = track.request
        if request.pool is not None and result.final is not None:
            states = dict(zip(result.rows, result.final, strict=True))
            for index in part:
                if rows[index].want_final:
                    request.pool.add(rows[index].position, states[index])
        count = request.params.prompt_logprobs
        if count is None or not track.prefilling or track.sample is not request.samples[0]:
            return
        assert result.logits is not None  # requested by these rows
        if not request.prompt_logprobs:
            request.prompt_logprobs.append(None)  # the first token has no context
        for index in part:
            following = rows[index].position + 1
            if following == len(request.prompt_logprobs) < len(request.tokens):  # not noted before
                logits = result.logits[result.rows.index(index)]
                entry = position_logprobs(logits, request.tokens[following], count)
                request.prompt_logprobs.append(track.sample.with_texts(entry))

    def _emit(self, track: RunningSequence, result: StepResult, index: int, row: Row) -> None:
        token, logprobs = choose_for_row(
            result, index, row, track.sample.sampler, track.request.tokens, track.sample.output
        )
        self._accept(track, token, logprobs)

    def _accept(
        self, track: RunningSequence, token: int, logprobs: PositionLogprobs | None
    ) -> None:
        delta = track.sample.accept(token, logprobs)
        self.new_tokens += 1
        track.request.last_token = self._stepper.progress
        if track.sample.finish_reason is not None:
            self._scheduler.end(track)
        self._deliver(track.request, delta)

    # --- the boards' own loop -------------------------------------------------------------------

    def _lone_track(self) -> RunningSequence | None:
        """The only running sequence, if it decodes greedily and no request waits."""
        if len(self._scheduler.running) != 1 or self._scheduler.waiting:
            return None
        track = self._scheduler.running[0]
        ready = not (track.prefilling or track.siblings) and track.left == 1
        return track if ready and not track.request.params.needs_logits else None

    def _plain_tokens(self, track: RunningSequence) -> int:
        """Number of tokens that the boards' own loop may decode before a draft or a sum is due."""
        most = track.sample.left
        if self._weights is not None:
            most = min(most, self._weights.loop_tokens())
        if self._speculation is None:
            return most
        return min(most, self._speculation.plain_tokens(track))

    def _run_greedy(self, track: RunningSequence, loop: GreedyLoop, max_tokens: int) -> None:
        request = track.request
        self._affected = [request]
        began, before = time.perf_counter(), self.new_tokens

        def on_token(token: int) -> bool:
            delta = track.sample.accept(token)
            self.new_tokens += 1
            request.last_token = self._stepper.progress
            try:
                request.deliver(delta)
            except BaseException as error:  # ends the loop; request.result() raises it
                request.fail(error)
            return request.ended or request.cancelled or self._must_return()

        try:
            ends = sorted(track.sample.sampler.end_tokens)
            loop.run(track.sequence, track.pending, max_tokens, on_token, ends)
        except ModelError as error:
            self._drop(request, ModelError(f"{request.name}: {error}", row=error.row))
        finally:
            if self._cache.is_open(track.sequence):
                track.computed = self._cache.length(track.sequence)
                self._cache.trim(track.sequence)
        if emitted := self.new_tokens - before:
            self._scheduler.pace.note(1, (time.perf_counter() - began) / emitted)
        if request.done or request.error is not None:
            self._scheduler.remove(request)


def _interrupted(error: BaseException) -> TransportError:
    """The error of other threads' requests: only the interrupted thread raises Ctrl-C."""
    return TransportError(
        f"a step was interrupted by {type(error).__name__} in the thread that ran it, and every "
        "open sequence was forgotten; submit the request again"
    )
