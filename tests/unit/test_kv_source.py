"""K and V that come from somewhere else: the loop computes what is left, on scripted boards."""

from __future__ import annotations

import pytest

from lora_host.errors import TransportError
from lora_sdk.engine.kv_source import NewSequence
from lora_sdk.engine.requests import Request, Sample
from lora_sdk.engine.scheduler import RunningSequence, Scheduler
from lora_sdk.engine.step_loop import StepLoop
from lora_sdk.sampling import Sampler, SamplingParams
from lora_sdk.step.step import build_rows
from tests.scripted import VOCABULARY, Bench, greedy_tokens

SHARED = list(range(40))


class Known:
    """Sequences that begin with SHARED take its K and V over, after so many steps."""

    def __init__(self, bench: Bench, steps: int, fails: bool = False) -> None:
        self.bench, self.fails, self.steps = bench, fails, steps
        self.parent = bench.cache.open()
        rows = build_rows(bench.cache, self.parent, SHARED)
        bench.stepper.run(rows)
        bench.cache.commit(self.parent, [row.slot for row in rows])
        self.polls: dict[int, int] = {}

    def needs(self, new: NewSequence) -> int:
        return new.pages

    def open(self, new: NewSequence) -> int:
        if list(new.tokens[:40]) != SHARED:
            return self.bench.cache.open(new.pages)
        sequence = self.bench.cache.fork(self.parent)
        self.polls[sequence] = 0
        return sequence

    def computed(self, sequence: int) -> int | None:
        if sequence not in self.polls:
            return 0
        self.polls[sequence] += 1
        if self.polls[sequence] <= self.steps:
            return None
        if self.fails:
            raise TransportError("the worker is gone")
        return self.bench.cache.length(sequence)

    def logits(self, sequence: int) -> None:
        """Its sequences are computed to the end by the boards."""


class Driven(Bench):
    def __init__(self, steps: int, fails: bool = False) -> None:
        super().__init__()
        self.source = Known(self, steps, fails)
        self.runner.steps.clear()
        self.scheduler = Scheduler(self.cache, 16, source=self.source)
        self.step_loop = StepLoop(
            self.scheduler, self.stepper, self.cache, None, None, lambda: False
        )

    def submit(self, tokens: list[int], **fields: object) -> Request:
        params = SamplingParams(max_tokens=6, **fields)  # type: ignore[arg-type]
        samples = [Sample(Sampler(params, VOCABULARY, 7, i), None, 6) for i in range(params.n)]
        request = Request(None, tokens, params, 7, samples)
        self.step_loop.submit(request)
        return request

    def finish(self) -> None:
        while self.step_loop.advance(one_step=True):
            pass


@pytest.mark.parametrize("steps", [0, 3])
def test_only_what_is_missing_is_computed(steps: int) -> None:
    driven = Driven(steps)
    whole = driven.submit([*SHARED, 50, 51, 52], n=2)
    other = driven.submit([1, 2])
    driven.finish()
    for output in whole.result().outputs:
        assert list(output.token_ids) == greedy_tokens([*SHARED, 50, 51, 52], 6)
    assert list(other.result().token_ids) == greedy_tokens([1, 2], 6)
    prompts = [row.position for rows in driven.runner.steps for row in rows if row.token >= 50]
    assert 40 in prompts and not any(
        row.sequence in driven.source.polls and row.position < 40
        for rows in driven.runner.steps
        for row in rows
    )


def test_others_run_while_one_waits_for_its_kv() -> None:
    driven = Driven(steps=4)
    waiting = driven.submit([*SHARED, 50])
    other = driven.submit([1, 2])
    for _ in range(4):
        driven.step_loop.advance(one_step=True)
    assert len(other.samples[0].output) == 4 and not waiting.samples[0].output
    driven.finish()
    assert list(waiting.result().token_ids) == greedy_tokens([*SHARED, 50], 6)


def test_a_source_that_fails_ends_its_request_alone() -> None:
    driven = Driven(steps=2, fails=True)
    waiting = driven.submit([*SHARED, 50])
    other = driven.submit([1, 2])
    driven.finish()
    with pytest.raises(TransportError, match="worker is gone"):
        waiting.result()
    assert list(other.result().token_ids) == greedy_tokens([1, 2], 6)


def test_a_track_knows_what_is_left() -> None:
    params = SamplingParams()
    sample = Sample(Sampler(params, VOCABULARY, 7, 0), None, 9)
    track = RunningSequence(Request(None, [1, 2, 3, 4], params, 7, [sample]), sample, 0, 1)
    assert (track.left, track.prefilling, track.tokens(3)) == (4, True, [1, 2, 3])
    track.computed = 3
    sample.output += [7, 8]
    assert (track.left, track.prefilling, track.tokens(9), track.pending) == (3, True, [4, 7, 8], 8)
    track.computed = 5
    assert (track.left, track.prefilling, track.tokens(9)) == (1, False, [8])
