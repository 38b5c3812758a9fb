"""Beam searches on scripted boards, and what each finds alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lora_sdk.engine.requests import Request, Sample
from lora_sdk.sampling import BeamSearchParams, Sampler
from lora_sdk.sampling.beam_search import BeamSearch
from tests.scripted import VOCABULARY, Bench, logits_of

END = 7  # ends a hypothesis


def search(bench: Bench, tokens: Sequence[int], on_delta: Any = None, **fields: Any) -> Request:
    """Queue a search; `fields` are those of BeamSearchParams."""
    params = BeamSearchParams(**fields)
    new = params.max_tokens or 1
    samples = [
        Sample(Sampler(params, VOCABULARY, 7, i, frozenset((END,))), None, new)
        for i in range(params.n)
    ]
    request = Request(None, list(tokens), params, 7, samples, on_delta)
    request.search = BeamSearch(samples[0].sampler, tokens, new)
    bench.generator.submit(request)
    return request


def alone(prompt: Sequence[int], **fields: Any) -> list[tuple[tuple[int, ...], float]]:
    """The search of one prompt, straight from the logits."""
    params = BeamSearchParams(**fields)
    sampler = Sampler(params, VOCABULARY, 7, 0, frozenset((END,)))
    one = BeamSearch(sampler, prompt, params.max_tokens or 1)
    while not one.ended:
        one.advance([logits_of([*prompt, *beam.tokens]) for beam in one.beams])
    return [(beam.tokens, float(beam.score)) for beam in one.results()]


def found(request: Request) -> list[tuple[tuple[int, ...], float | None]]:
    """The hypotheses of a request and their scores."""
    return [(output.token_ids, output.score) for output in request.result().outputs]
