"""The generation loop on scripted boards: whatever shares a step, tokens are plain decoding's."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lora_host.errors import LinkError, ModelError, RequestError
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.requests import Request
from lora_sdk.sampling import Sampler, SamplingParams
from lora_sdk.step.results import Delta
from lora_sdk.step.step import Row, StepResult
from tests.scripted import VOCABULARY, Bench, greedy_tokens, logits_of


class Driven(Bench):
    """A bench with a generator."""

    max_tokens = 5

    def __init__(self, row_limit: int = 16, loop: bool = False, **sizes: int) -> None:
        super().__init__(**sizes)
        self.generator = Generator(self.stepper, self.cache, row_limit, self.loop if loop else None)


PROMPTS = [[1], [2, 3, 4], list(range(50)), [9] * 33, [5, 6], list(range(40, 60))]


@pytest.mark.parametrize("row_limit", [1, 3, 16, 64])
@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_batched_tokens_are_those_of_each_prompt_alone(row_limit: int, sequences: int) -> None:
    driven = Driven(row_limit=row_limit, sequences=sequences)
    requests = [driven.submit(p, max_tokens=3 + i) for i, p in enumerate(PROMPTS)]
    driven.finish()
    for i, (prompt, request) in enumerate(zip(PROMPTS, requests, strict=True)):
        output = request.result().outputs[0]
        assert list(output.token_ids) == greedy_tokens(prompt, 3 + i)
        assert output.finish_reason == "length"
    assert max(len(rows) for rows in driven.runner.steps) <= row_limit


def test_several_sequences_share_a_step_and_a_place_goes_to_the_next() -> None:
    driven = Driven(sequences=2)
    requests = [driven.submit([i], max_tokens=4) for i in range(3)]
    driven.finish()
    together = [{row.sequence for row in rows} for rows in driven.runner.steps if rows]
    assert together[:3] == [{0, 1}] * 3
    assert all(r.result().finish_reason == "length" for r in requests)
    assert len(driven.runner.steps) < 3 * 4


def test_a_long_prompt_does_not_stop_the_others() -> None:
    driven = Driven(row_limit=8)
    short = driven.submit([1], max_tokens=10)
    long = driven.submit(list(range(60)), max_tokens=2)
    for _ in range(4):
        driven.generator.advance()
    assert len(short.samples[0].output) == 4 and not long.samples[0].output
    driven.finish()
    assert list(long.result().token_ids) == greedy_tokens(list(range(60)), 2)


def test_more_sequences_than_rows_take_turns() -> None:
    driven = Driven(row_limit=2, sequences=4)
    requests = [driven.submit([i], max_tokens=4) for i in range(4)]
    for _ in range(4):
        driven.generator.advance()
    assert {len(r.samples[0].output) for r in requests} == {2}
    driven.finish()
    assert [list(r.result().token_ids) for r in requests] == [
        greedy_tokens([i], 4) for i in range(4)
    ]


def test_admission_waits_for_pages_and_oldest_goes_first() -> None:
    driven = Driven(pages=4 + 4, sequences=4)
    first = driven.submit(list(range(60)), max_tokens=30)  # 3 pages
    second = driven.submit(list(range(60)), max_tokens=30)
    third = driven.submit([1], max_tokens=2)
    driven.generator.advance()
    assert first.started is not None and second.started is None and third.started is None
    driven.finish()
    assert all(r.result().finish_reason == "length" for r in (first, second, third))


def test_a_request_that_could_never_run_is_refused() -> None:
    driven = Driven(pages=4 + 2)
    request = driven.submit(list(range(60)), max_tokens=30)
    driven.generator.advance()
    with pytest.raises(RequestError, match="3 KV pages"):
        request.result()


def test_a_request_without_room_says_so_instead_of_waiting_for_ever() -> None:
    driven = Driven(sequences=1)
    driven.cache.open()  # held by the token-level interface
    request = driven.submit([1])
    driven.finish()
    with pytest.raises(RequestError, match="0 sequences are free"):
        request.result()


@pytest.mark.parametrize("prompt", [[1, 2], list(range(32)), list(range(45))])
def test_n_samples_share_the_prompt_and_draw_their_own_noise(prompt: list[int]) -> None:
    driven = Driven(row_limit=64)
    request = driven.submit(prompt, n=3, temperature=1.0, max_tokens=6)
    driven.finish()
    outputs = [list(o.token_ids) for o in request.result().outputs]
    assert outputs == [plain_sampling(prompt, 6, sample) for sample in range(3)]
    assert sum(len(rows) for rows in driven.runner.steps) == len(prompt) + 3 * 5


def test_more_samples_than_sequences_run_in_groups() -> None:
    driven = Driven(sequences=2)
    request = driven.submit([3, 4], n=5, temperature=0.8, max_tokens=4)
    driven.finish()
    outputs = [list(o.token_ids) for o in request.result().outputs]
    assert outputs == [plain_sampling([3, 4], 4, s, temperature=0.8) for s in range(5)]


def test_a_request_that_fails_in_the_middle_of_a_step_takes_its_other_rows_along() -> None:
    driven = Driven()
    failing = driven.submit(
        [1, 2],
        n=3,
        max_tokens=9,
        allowed_tokens=lambda tokens: np.full(VOCABULARY, len(tokens) < 3),
    )
    kept = driven.submit([5], max_tokens=9)
    driven.finish()
    with pytest.raises(RequestError, match="allows no token"):
        failing.result()
    assert list(kept.result().token_ids) == greedy_tokens([5], 9)
    driven.stepper.flush()
    assert driven.cache.free_sequences == 4 and driven.cache.free_slots == 128


def plain_sampling(
    prompt: list[int], count: int, sample: int, temperature: float = 1.0
) -> list[int]:
    """One sequence alone, straight from the sampler."""
    sampler = Sampler(SamplingParams(temperature=temperature), VOCABULARY, 7, sample)
    output: list[int] = []
    for _ in range(count):
        seen = [*prompt, *output]
        output.append(sampler.choose(logits_of(seen), len(seen), prompt, output)[0])
    return output


def test_stop_token_ends_and_is_reported() -> None:
    driven = Driven()
    stop = greedy_tokens([1, 2], 3)[2]
    request = driven.submit([1, 2], stop_token_ids=[stop], max_tokens=9)
    driven.finish()
    output = request.result().outputs[0]
    assert output.finish_reason == "stop" and output.stop_reason == stop
    assert list(output.token_ids) == greedy_tokens([1, 2], 3)


def test_the_context_ends_a_sequence_and_its_last_token_is_still_given() -> None:
    driven = Driven(context=12)
    request = driven.submit(list(range(10)), max_tokens=None)
    driven.finish()
    output = request.result().outputs[0]
    assert output.finish_reason == "length"
    assert list(output.token_ids) == greedy_tokens(list(range(10)), 3)


def test_prompt_logprobs_cover_every_token_but_the_first() -> None:
    driven = Driven(row_limit=4)
    prompt = [3, 1, 4, 1, 5, 9]
    request = driven.submit(prompt, prompt_logprobs=2, max_tokens=1, n=2)
    driven.finish()
    entries = request.result().prompt_logprobs
    assert entries is not None and len(entries) == len(prompt) and entries[0] is None
    for i, entry in enumerate(entries[1:], start=1):
        assert entry is not None
        exact = logits_of(prompt[:i]).astype(np.float64)
        exact -= np.log(np.exp(exact).sum())
        assert entry.chosen.token == prompt[i]
        assert entry.chosen.logprob == pytest.approx(exact[prompt[i]], abs=1e-5)
        assert entry.top[0].token == int(np.argmax(exact)) and len(entry.top) == 2


def test_cancelling_one_request_leaves_the_others() -> None:
    driven = Driven()
    gone, kept = driven.submit([1], max_tokens=50), driven.submit([2], max_tokens=8)
    waiting = driven.submit([3], max_tokens=3)
    driven.generator.advance()
    gone.cancel()
    driven.finish()
    assert gone.result().finish_reason == "cancelled"
    assert list(gone.result().token_ids) == greedy_tokens([1], 1)
    assert list(kept.result().token_ids) == greedy_tokens([2], 8)
    assert list(waiting.result().token_ids) == greedy_tokens([3], 3)
    driven.stepper.flush()
    assert driven.cache.free_sequences == 4 and driven.cache.free_slots == 128


def test_a_listener_that_raises_ends_its_request_alone() -> None:
    driven = Driven()

    def listen(delta: Delta) -> None:
        raise BrokenPipeError

    broken, kept = driven.request([1]), driven.submit([2])
    broken.on_delta = listen
    driven.generator.submit(broken)
    driven.finish()
    with pytest.raises(BrokenPipeError):
        broken.result()
    assert list(kept.result().token_ids) == greedy_tokens([2], 5)


def test_a_listener_that_returns_true_cancels() -> None:
    driven = Driven()
    request = driven.request([1], max_tokens=50)
    request.on_delta = lambda delta: len(request.samples[0].output) == 3
    driven.generator.submit(request)
    driven.finish()
    assert request.result().finish_reason == "cancelled" and len(request.result().token_ids) == 3


def test_a_failed_step_fails_the_requests_and_the_next_ones_run() -> None:
    driven = Driven()
    request = driven.submit([1], max_tokens=9)
    driven.generator.advance()

    def fail() -> None:
        raise LinkError("board 0 port 1 to board 1 port 0 is down")

    driven.runner.before_step = fail
    assert driven.generator.advance()  # may pass
    with pytest.raises(LinkError):
        driven.generator.advance()
    with pytest.raises(LinkError):
        request.result()
    driven.runner.before_step = lambda: None
    after = driven.submit([4], max_tokens=3)
    driven.finish()
    assert list(after.result().token_ids) == greedy_tokens([4], 3)


def test_an_interrupt_is_raised_and_the_engine_goes_on_afterwards() -> None:
    driven = Driven()
    driven.submit([1], max_tokens=9)
    driven.generator.advance()

    def interrupt() -> None:
        raise KeyboardInterrupt

    driven.runner.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        driven.generator.advance()
    driven.runner.before_step = lambda: None
    after = driven.submit([4], max_tokens=3)
    driven.finish()
    assert list(after.result().token_ids) == greedy_tokens([4], 3)


def test_nan_logits_fail_their_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.scripted as scripted

    def logits(tokens: Sequence[int]) -> np.ndarray:
        values = logits_of(tokens)
        if tokens[0] == 1 and len(tokens) > 2:
            values[3] = np.nan
        return values

    monkeypatch.setattr(scripted, "logits_of", logits)
    for temperature in (0.0, 1.0):
        driven = Driven()
        bad = driven.submit([1], temperature=temperature)
        good = driven.submit([2])
        driven.finish()
        with pytest.raises(ModelError, match="NaN"):
            bad.result()
        assert len(good.result().token_ids) == 5


def test_nan_in_the_boards_loop_leaves_the_books_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.scripted as scripted

    def logits(tokens: Sequence[int]) -> np.ndarray:
        return logits_of(tokens) if tokens[0] != 1 or len(tokens) < 5 else logits_of([]) * np.nan

    monkeypatch.setattr(scripted, "logits_of", logits)
    driven = Driven(loop=True)
    bad = driven.submit([1], max_tokens=20)
    driven.finish(one_step=False)
    with pytest.raises(ModelError, match=r"the prompt: .*NaN"):
        bad.result()
    assert len(bad.samples[0].output) == 4
    after = driven.submit([4], max_tokens=3)
    driven.finish(one_step=False)
    assert list(after.result().token_ids) == greedy_tokens([4], 3)
    driven.stepper.flush()
    assert driven.cache.free_slots == 128 and driven.cache.free_pages == 36


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 40])
def test_the_boards_loop_gives_the_same_tokens_and_books(max_tokens: int) -> None:
    driven = Driven(loop=True)
    request = driven.submit([1, 2, 3], max_tokens=max_tokens)
    driven.finish(one_step=False)
    assert list(request.result().token_ids) == greedy_tokens([1, 2, 3], max_tokens)
    driven.stepper.flush()
    assert driven.cache.free_sequences == 4 and driven.cache.free_slots == 128
    assert driven.cache.free_pages == 36


def test_the_boards_loop_makes_way_for_a_new_request_and_goes_on() -> None:
    driven = Driven(loop=True)
    first = driven.request([1, 2], max_tokens=12)
    late: list[Request] = []

    def listen(delta: Delta) -> None:
        if len(first.samples[0].output) == 4:
            late.append(driven.submit([5], max_tokens=3))

    first.on_delta = listen
    driven.generator.submit(first)
    driven.finish(one_step=False)
    assert list(first.result().token_ids) == greedy_tokens([1, 2], 12)
    assert list(late[0].result().token_ids) == greedy_tokens([5], 3)
    assert any(len({row.sequence for row in rows}) == 2 for rows in driven.runner.steps)


def test_an_interrupt_in_the_boards_loop_stops_it() -> None:
    driven = Driven(loop=True)
    request = driven.request([1, 2], max_tokens=40)

    def listen(delta: Delta) -> None:
        if len(request.samples[0].output) == 4:
            raise KeyboardInterrupt

    request.on_delta = listen
    driven.generator.submit(request)
    driven.finish(one_step=False)
    with pytest.raises(KeyboardInterrupt):
        request.result()
    after = driven.submit([4], max_tokens=3)
    driven.finish(one_step=False)
    assert list(after.result().token_ids) == greedy_tokens([4], 3)


def test_threads_may_submit_while_another_advances() -> None:
    driven = Driven(row_limit=8)
    requests: list[Request] = []

    def work(first: int) -> None:
        for i in range(4):
            request = driven.submit([first, i], max_tokens=4)
            requests.append(request)
            while not request.ended:
                driven.generator.advance()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(requests) == 12
    for request in requests:
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 4)


class Paced(Driven):
    """A bench whose steps take 3 s and half a second a row."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
        super().__init__(**sizes)
        self.now = 0.0
        clock = SimpleNamespace(perf_counter=lambda: self.now, sleep=time.sleep)
        monkeypatch.setattr("lora_sdk.engine.step_loop.time", clock)
        run = self.runner.step

        def step(rows: Sequence[Row], *header: Any) -> StepResult:
            self.now += 3 + 0.5 * len(rows)
            return run(rows, *header)

        monkeypatch.setattr(self.runner, "step", step)

    def stream(self, tokens: Sequence[int], **fields: object) -> Request:
        """A request whose tokens somebody waits for."""
        request = self.request(tokens, **fields)
        request.on_delta = lambda delta: None
        self.generator.submit(request)
        return request

    def steps_of(self, request: Sequence[int]) -> list[int]:
        """Rows of a sequence in each step that had some."""
        counts = [sum(row.sequence in request for row in rows) for rows in self.runner.steps]
        return [count for count in counts if count]


def test_a_prompt_stretches_the_steps_of_a_stream_to_twice_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Paced(monkeypatch, row_limit=64)
    stream = driven.stream([1, 2], max_tokens=60)
    for _ in range(10):
        driven.generator.advance()
    prompt = driven.submit(list(range(200)), max_tokens=1)
    driven.finish()
    rows = driven.steps_of([1])
    assert rows[0] == 7 == max(rows)  # 3.5 s for the stream's row, 3.5 s for 7 rows
    assert list(stream.result().token_ids) == greedy_tokens([1, 2], 60)
    assert list(prompt.result().token_ids) == greedy_tokens(list(range(200)), 1)


def test_prompts_take_all_rows_where_nobody_waits_for_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Paced(monkeypatch, row_limit=64)
    driven.submit([1, 2], max_tokens=60)
    for _ in range(10):
        driven.generator.advance()
    driven.submit(list(range(200)), max_tokens=1)
    driven.finish()
    assert driven.steps_of([1])[0] == 63


def test_prompts_have_a_share_of_the_rows_whatever_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Paced(monkeypatch, row_limit=32, sequences=41, pages=150, scratch=300)
    streams = [driven.stream([i], max_tokens=40) for i in range(40)]
    driven.generator.advance()
    driven.stream(list(range(50)), max_tokens=1)
    for _ in range(25):
        driven.generator.advance()
    assert driven.steps_of([40]) == [2] * 25
    assert {len(stream.samples[0].output) for stream in streams} <= {19, 20}


@pytest.mark.parametrize("known", [(3, 5), (0, 2), (4, 0)])
def test_samples_that_bring_tokens_go_on_from_their_own(known: tuple[int, int]) -> None:
    """As a request does that another engine has begun."""
    fields = {"max_tokens": 8, "n": 2, "temperature": 0.9}
    whole = Driven()
    want = whole.submit([1, 2, 3], **fields)
    whole.finish()
    other = Driven()
    request = other.request([1, 2, 3], **fields)
    for sample, done, count in zip(request.samples, want.samples, known, strict=True):
        for token in done.output[:count]:
            sample.accept(token)
    other.generator.submit(request)
    other.finish()
    assert [one.output for one in request.samples] == [one.output for one in want.samples]
