"""A running request: its samples, their output, and when each is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_sdk.sampling import Sampler, SamplingParams
from lora_sdk.sampling.beam_search import BeamSearch
from lora_sdk.sampling.logprobs import PositionLogprobs
from lora_sdk.step.results import Delta, Output, Result, Timing
from lora_sdk.step.speculation_statistics import SpeculationStatistics
from lora_sdk.text.streaming import TextStream

if TYPE_CHECKING:
    from lora_host.errors import LoraError
    from lora_sdk.engine.kv_source import MigratedKv

OnDelta = Callable[[Delta], object]
"""Receives the deltas of a request; returning True cancels it."""


class Sample:
    """One of a request's n samples: its tokens and text so far."""

    def __init__(self, sampler: Sampler, text: TextStream | None, max_new: int) -> None:
        """`max_new` tokens end it with "length". `text` is None without a tokenizer."""
        self.sampler = sampler
        self.output: list[int] = []
        self.logprobs: list[PositionLogprobs] = []
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self.score: float | None = None  # of a hypothesis
        self._text = text
        self._max_new = max_new

    @property
    def index(self) -> int:
        """Index of this sample among the n samples."""
        return self.sampler.sample

    @property
    def limit(self) -> int:
        """How many tokens it may emit in all."""
        return self._max_new

    @property
    def left(self) -> int:
        """How many tokens it may still emit."""
        return self._max_new - len(self.output)

    def accept(self, token: int, logprobs: PositionLogprobs | None = None) -> Delta:
        """Append the next token. Its delta has a finish_reason if the sample is finished."""
        sampler, stream = self.sampler, self._text
        params = sampler.params
        self.output.append(token)
        count = len(self.output)
        if logprobs is not None:
            logprobs = self.with_texts(logprobs)
            self.logprobs.append(logprobs)
        text = ""
        ended = token in sampler.end_tokens
        if stream is not None and (not ended or params.include_stop_str_in_output):
            text = stream.push(token, count >= params.min_tokens)
        if ended:
            text += self._finish("stop", token)
        elif stream is not None and stream.matched is not None:
            text += self._finish("stop", stream.matched)
        elif count >= self._max_new:
            text += self._finish("length", None)
        return Delta(sampler.sample, text, token, logprobs, self.finish_reason, self.stop_reason)

    def with_texts(self, logprobs: PositionLogprobs) -> PositionLogprobs:
        """Log probabilities with the tokens' texts, if there is a tokenizer."""
        return logprobs if self._text is None else logprobs.with_texts(self._text.token_text)

    def end(self) -> Delta:
        """End the sample without a further token."""
        text = self._finish("length", None)
        return Delta(self.index, text, None, None, self.finish_reason)

    def cancel(self) -> Delta:
        """End the sample with its output so far."""
        text = self._finish("cancelled", None)
        return Delta(self.index, text, None, None, self.finish_reason)

    def result(self) -> Output:
        """The sample's output."""
        return Output(
            index=self.index,
            text=self._text.text if self._text is not None else "",
            token_ids=tuple(self.output),
            finish_reason=self.finish_reason or "cancelled",
            stop_reason=self.stop_reason,
            logprobs=None if self.sampler.params.logprobs is None else tuple(self.logprobs),
            score=self.score,
        )

    def _finish(self, reason: str, stop_reason: str | int | None) -> str:
        self.finish_reason, self.stop_reason = reason, stop_reason
        if self._text is None or self._text.matched is not None:
            return ""
        rest = self._text.finish()
        if self._text.matched is not None and reason == "length":  # held-back text completed it
            self.finish_reason, self.stop_reason = "stop", self._text.matched
        return rest


Vector = NDArray[np.float32]


class Pool:
    """The final hidden states of one prompt of `tokens` tokens, as they are computed. Those of
    positions that are known already change nothing: a request that was interrupted begins again."""

    def __init__(self, pooling: str, tokens: int, normalize: bool) -> None:
        self._mean = pooling == "mean"
        self._tokens = tokens
        self._normalize = normalize
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self._next = 0 if self._mean else self._tokens - 1
        self._sum: NDArray[np.float64] | None = None

    def wanted(self, start: int, count: int) -> list[int]:
        """Which of `count` positions from `start` on need their state: indices among them."""
        return [i for i in range(count) if self._next <= start + i < self._tokens]

    def add(self, position: int, state: NDArray[np.float16]) -> None:
        """FP16 [d] of a position, in ascending order."""
        if position == self._next:
            wide = state.astype(np.float64)
            self._sum = 0.0 + wide if self._sum is None else self._sum + wide
            self._next += 1

    def vector(self) -> Vector:
        """FP32 [d], once every state is known."""
        assert self._sum is not None and self._next == self._tokens
        pooled = self._sum / float(self._tokens if self._mean else 1)
        if self._normalize:
            square = float(np.add.accumulate(pooled * pooled)[-1])  # sequential
            if square > 0:
                pooled = pooled / np.sqrt(square)
        return pooled.astype(np.float32)


@dataclass
class Request:
    """A prompt to be continued. `prompt` is its text, None if it was given as token ids. With a
    `search` the samples receive its hypotheses when it has ended."""

    prompt: str | None
    tokens: list[int]
    params: SamplingParams
    seed: int
    samples: list[Sample]
    on_delta: OnDelta | None = None
    name: str = "the prompt"  # used in messages
    on_end: Callable[[], None] | None = None
    wake_at_end: Callable[[], None] | None = None  # wakes the thread that waits for the request
    prompt_logprobs: list[PositionLogprobs | None] = field(default_factory=list)
    cancelled: bool = False
    error: BaseException | None = None
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None
    first_token: float | None = None
    finished: float | None = None
    ended: bool = False  # every delta has been delivered
    speculation: SpeculationStatistics | None = None  # counts, if the engine speculates
    search: BeamSearch | None = None
    cached_tokens: int | None = None  # of its prompt; None until it has started
    prefill: str | None = None  # the result's label, known before its first token
    on_first_token: Callable[[], None] | None = None
    rescue: Callable[[BaseException], bool] | None = None  # whether others go on after a failure
    home: object | None = None  # the generator that runs it
    migrated: MigratedKv | None = None  # what it brought along from another engine
    raised: BaseException | None = None  # by its own callback
    on_finish: Callable[[], None] | None = None
    pool: Pool | None = None  # what is asked for in place of new tokens
    last_token: int = -1  # the stepper's progress at its latest token; -1: it has none

    def note_cached(self, count: int) -> None:
        """Its prompt's first `count` tokens are not computed, at its first start."""
        if self.cached_tokens is None:
            self.cached_tokens = count

    def note_prefill(self, mode: str) -> None:
        """K and V of its prompt came from a worker of this mode, and are not the boards' own."""
        self.prefill = mode

    @property
    def done(self) -> bool:
        """Whether every sample is finished, or the request has failed."""
        return self.error is not None or all(s.finish_reason for s in self.samples)

    def cancel(self) -> None:
        """Request an end before the next step. Thread-safe."""
        self.cancelled = True

    def forget_prompt(self) -> None:
        """Drop what rows of its prompt have given, which are to run again: it has no token yet."""
        self.prompt_logprobs = []
        if self.pool is not None:
            self.pool.reset()

    def deliver(self, delta: Delta) -> None:
        """Pass a delta to the callback and record the times."""
        if self.first_token is None and delta.token_id is not None:
            self.first_token = time.monotonic()
            if self.params.prompt_logprobs is not None:
                delta = replace(delta, prompt_logprobs=tuple(self.prompt_logprobs))
            if self.prefill is not None:
                delta = replace(delta, prefill=self.prefill)
            if self.on_first_token is not None:
                self.on_first_token()
        try:
            if self.on_delta is not None and self.on_delta(delta) is True:
                self.cancel()
        except BaseException as error:
            self.raised = error
            raise
        if delta.finish_reason is not None and self.done:
            self._end()

    def end_cancelled(self) -> None:
        """End its unfinished samples with their output so far."""
        for sample in self.samples:
            if sample.finish_reason is None:
                try:
                    self.deliver(sample.cancel())
                except BaseException as error:  # a callback's
                    self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended or goes on elsewhere."""
        if self.ended:
            return
        if self.rescue is None or error is self.raised or not self.rescue(error):
            self.error = error
            self._end()

    def _end(self) -> None:
        if not self.ended:
            self.finished = time.monotonic()
            self.ended = True
            if self.on_finish is not None:
                self.on_finish()
            try:
                if self.on_end is not None:
                    self.on_end()
            except BaseException as error:  # raised where the result is asked for
                self.error = self.error or error
            finally:
                if self.wake_at_end is not None:
                    self.wake_at_end()

    def result(self) -> Result:
        """The finished request's result. Raises the request's error if it has one."""
        if self.error is not None:
            raise self.error
        requested = self.params.prompt_logprobs is not None
        return Result(
            prompt=self.prompt,
            prompt_token_ids=tuple(self.tokens),
            outputs=tuple(sample.result() for sample in self.samples),
            seed=self.seed,
            prompt_logprobs=tuple(self.prompt_logprobs) if requested else None,
            speculation=self.speculation,
            cached_tokens=self.cached_tokens or 0,
            prefill=self.prefill,
            timing=Timing(
                queued=(self.started or self.submitted) - self.submitted,
                first_token=(self.first_token or self.submitted) - self.submitted,
                total=(self.finished or self.submitted) - self.submitted,
            ),
        )


def worded(error: LoraError, more: str) -> LoraError:
    """The same error with more in its message."""
    return type(error)(f"{error}; {more}", failure=error.failure)


def positions_of(tokens: Sequence[int], max_new: int) -> int:
    """Cache positions that a sequence needs. The last new token is never run."""
    return len(tokens) + max_new - 1
