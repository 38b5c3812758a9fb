"""What a replica's requests have to tell, until the server asks for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lora_cluster.replicas.messages import Facts, News, Token, told

if TYPE_CHECKING:
    from lora_sdk.engine.requests import Request, Sample
    from lora_sdk.step.results import Delta

GATHER_SECONDS = 0.002  # after the first token, for those of the same step
PROGRESS_SECONDS = 1.0  # between two looks at requests that nobody streams


@dataclass
class _Kept:
    tokens: list[Token] = field(default_factory=list)
    facts: Facts | None = None
    ended: bool = False
    error: BaseException | None = None


@dataclass
class _Quiet:
    """A request without a stream. `count`: its tokens that were told."""

    request: Request
    count: int


class OutputQueue:
    """Gathers tokens and ends of all requests. Thread-safe."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        """`is_lost`: whether the boards are beyond recovery, asked with each error."""
        self._is_lost = is_lost
        self._kept: dict[int, _Kept] = {}
        self._quiet: dict[int, _Quiet] = {}
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._some = threading.Event()

    def watch(self, number: int, request: Request, streams: bool) -> None:
        """Tell of this request from now on, of each token at once if it `streams`."""
        request.on_end = partial(self._end, number, request)
        if streams:
            request.on_delta = partial(self._add, number, request)
            return
        with self._lock:
            self._quiet[number] = _Quiet(request, len(request.samples[0].output))

    def refuse(self, number: int, error: BaseException) -> None:
        """A request that could not be started."""
        with self._lock:
            self._quiet.pop(number, None)
            kept = self._of(number)
            kept.ended, kept.error = True, error
        self._some.set()

    def take(self, seconds: float) -> list[News]:
        """What has come, waiting at most so long for something."""
        if self._some.wait(seconds):
            time.sleep(GATHER_SECONDS)
        with self._lock:
            self._some.clear()
            if time.monotonic() - self._looked >= PROGRESS_SECONDS:
                self._look()
            taken, self._kept = self._kept, {}
        return [self._news(number, kept) for number, kept in taken.items()]

    def _news(self, number: int, kept: _Kept) -> News:
        error = kept.error
        failure = None if error is None else told(error, self._is_lost())
        return News(number, tuple(kept.tokens), kept.facts, kept.ended, failure)

    def _of(self, number: int) -> _Kept:
        return self._kept.setdefault(number, _Kept())

    def _look(self) -> None:
        """Tokens of requests without a stream, but for the last, which comes with its end."""
        self._looked = time.monotonic()
        for number, quiet in self._quiet.items():
            request = quiet.request
            if len(request.samples) == 1 and request.search is None:
                ready = list(_more(quiet, len(request.samples[0].output) - 1))
                if ready:
                    self._of(number).tokens += ready

    def _add(self, number: int, request: Request, delta: Delta) -> None:
        if delta.token_id is None:  # cancelled
            return
        place = len(request.samples[delta.index].output)
        with self._lock:
            kept = self._of(number)
            kept.tokens.append(Token(delta.index, place, delta.token_id, delta.logprobs))
            if kept.facts is None and place == 1:
                kept.facts = _facts(request)
        if not request.done:  # else with its end
            self._some.set()

    def _end(self, number: int, request: Request) -> None:
        with self._lock:
            kept = self._of(number)
            quiet = self._quiet.pop(number, None)
            kept.ended, kept.error = True, request.error
            if request.error is None:
                kept.facts = _facts(request)
                if quiet is not None:
                    kept.tokens += _rest(quiet)
        self._some.set()


def _more(quiet: _Quiet, end: int) -> Iterator[Token]:
    """Tokens of the first sample that were not told, up to the `end`-th."""
    start, quiet.count = quiet.count, max(quiet.count, end)
    yield from _tokens(quiet.request.samples[0], 0, start, end)


def _rest(quiet: _Quiet) -> list[Token]:
    samples = quiet.request.samples
    found = list(_more(quiet, len(samples[0].output)))
    for index, sample in enumerate(samples[1:], 1):
        found += _tokens(sample, index, 0, len(sample.output))
    return found


def _tokens(sample: Sample, index: int, start: int, end: int) -> Iterator[Token]:
    """With log probabilities where there are some; tokens that the replica was given have none."""
    given = len(sample.output) - len(sample.logprobs)
    for place in range(start, end):
        known = sample.logprobs[place - given] if sample.logprobs and place >= given else None
        yield Token(index, place + 1, sample.output[place], known)


def _facts(request: Request) -> Facts:
    started = request.started or request.submitted
    scores = None
    if request.search is not None:
        scores = tuple(float(sample.score or 0.0) for sample in request.samples)
    return Facts(
        request.cached_tokens or 0,
        started - request.submitted,
        (request.first_token or started) - started,
        request.prefill,
        tuple(request.prompt_logprobs) if request.prompt_logprobs else None,
        request.speculation,
        scores,
    )
