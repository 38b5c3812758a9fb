"""The server's own request, kept in step with the one that a replica runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lora_cluster.replicas.messages import Facts, News, Token, Work
from lora_host.errors import RequestError
from lora_sdk.engine.beams import take_hypotheses
from lora_sdk.sampling.beam_search import Beam

if TYPE_CHECKING:
    from lora_sdk.engine.requests import Request
    from lora_sdk.sampling import SamplingParams

CHANGED = "a replica gives other tokens than those that were delivered; submit the request again"


class RemoteRequest:
    """One request on one replica. What it has here is all that a client has seen, so that another
    replica can go on with it."""

    def __init__(self, request: Request, number: int) -> None:
        """RequestError: it has a callback that only this process can call."""
        self.request = request
        self.number = number
        self._grammar = _grammar_of(request.params)
        self._began = time.monotonic()

    def work(self) -> Work:
        """What the replica is told."""
        request = self.request
        return Work(
            self.number,
            tuple(request.tokens),
            replace(request.params, allowed_tokens=None),
            request.seed,
            tuple(tuple(sample.output) for sample in request.samples),
            self._grammar,
            request.on_delta is not None,
        )

    def take(self, news: News) -> None:
        """Deliver new tokens, and the end. Raises what a callback raises, and RequestError for
        tokens that differ from those that were delivered."""
        request = self.request
        if news.facts is not None:
            self._note(news.facts)
        for token in news.tokens:
            if request.ended:
                return
            if request.cancelled:
                break
            self._accept(token)
        if request.cancelled and not request.ended:
            request.end_cancelled()

    def _note(self, facts: Facts) -> None:
        request = self.request
        request.note_cached(facts.cached_tokens)
        request.prefill = facts.prefill
        request.speculation = facts.speculation
        if request.started is None or request.on_delta is None:
            request.started = request.started or self._began + facts.queued
        if request.first_token is None and request.on_delta is None:
            request.first_token = self._began + facts.queued + facts.first
        if facts.prompt_logprobs is not None and not request.prompt_logprobs:
            request.prompt_logprobs = list(facts.prompt_logprobs)
        if facts.scores is not None and request.search is not None:
            take_hypotheses(request, [Beam((), np.float32(score)) for score in facts.scores])

    def _accept(self, token: Token) -> None:
        request = self.request
        sample = request.samples[token.sample]
        if token.place <= len(sample.output):
            if sample.output[token.place - 1] == token.token:
                return
            raise RequestError(f"{CHANGED} (from new token {token.place} on)", usage=False)
        if token.place != len(sample.output) + 1:
            raise RequestError(
                f"token {token.place} came after token {len(sample.output)}; submit the request "
                "again",
                usage=False,
            )
        request.deliver(sample.accept(token.token, token.logprobs))


def _grammar_of(params: SamplingParams) -> str | None:
    """RequestError: `allowed_tokens` is a function, and not made of a grammar."""
    if params.allowed_tokens is None:
        return None
    grammar = getattr(params.allowed_tokens, "grammar", None)
    if not isinstance(grammar, str):
        raise RequestError(
            "allowed_tokens is a function of this program, and replicas are others; use a grammar"
        )
    return grammar


def tokens_of(request: Request) -> Sequence[int]:
    """Prompt and output of a request that has ended: what its replica keeps as a prefix."""
    return [*request.tokens, *request.samples[0].output]
