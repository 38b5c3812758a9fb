"""Too few pages for all requests: some wait, and every text is that of the request alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from lora_host.errors import AdapterError, RequestError
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.kv_source import PrefixSource
from lora_sdk.engine.requests import Request
from lora_sdk.engine.scheduler import RunningSequence
from lora_sdk.sampling import Sampler
from tests.scripted import VOCABULARY, greedy_tokens, logits_of
from tests.searches import alone as searched_alone
from tests.searches import found, search
from tests.sharing import Sharing, text


def alone(request: Request, sample: int) -> list[int]:
    """The tokens of one sample, straight from the sampler."""
    sampler = Sampler(request.params, VOCABULARY, 7, sample)
    output: list[int] = []
    for _ in range(request.params.max_tokens or 0):
        seen = [*request.tokens, *output]
        output.append(sampler.choose(logits_of(seen), len(seen), request.tokens, output)[0])
    return output


def check(request: Request) -> None:
    for sample, output in enumerate(request.result().outputs):
        assert list(output.token_ids) == alone(request, sample)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("loop", [True, False])
def test_mixed_requests_under_a_third_of_the_pages_that_they_need(cached: bool, loop: bool) -> None:
    draw = random.Random(5)
    bench = Sharing(row_limit=32, loop=loop, sequences=6, pages=4 + 8, context=200)
    if not cached:
        bench.generator = Generator(bench.stepper, bench.cache, 32, bench.loop if loop else None)
    requests = []
    for index in range(20):
        prompt = text(draw.randint(1, 30), seed=draw.randint(1, 3))
        kind: dict[str, object] = draw.choice(
            [{}, {"temperature": 0.9}, {"temperature": 0.7, "n": 2}, {"prompt_logprobs": 1}]
        )
        request = bench.submit(prompt, max_tokens=draw.randint(40, 90), **kind)
        if index % 9 == 0:
            request.cancel()
        else:
            requests.append(request)
        if index % 10 == 9:
            bench.finish(one_step=not loop)
    bench.finish(one_step=not loop)
    for request in requests:
        check(request)
        scores = request.result().prompt_logprobs
        assert scores is None or len(scores) == len(request.tokens)
    assert bench.generator.preempted >= 3
    bench.check_settled()


FIELDS: dict[str, object] = {"beam_width": 3, "n": 2, "max_tokens": 70, "length_penalty": 2.0}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("row_limit", [2, 32])
def test_searches_wait_whole_and_find_the_same(cached: bool, row_limit: int) -> None:
    """Also while some of the beams' rows have run and the others have not."""
    draw = random.Random(3)
    bench = Sharing(row_limit=row_limit, sequences=16, pages=4 + 16, context=200)
    if not cached:
        bench.generator = Generator(bench.stepper, bench.cache, row_limit)
    searches, waited = [], 0
    preempt = bench.generator._scheduler.preempt

    def counted(tracks: Sequence[RunningSequence]) -> None:
        nonlocal waited
        waited += tracks[0].beams is not None
        preempt(tracks)

    bench.generator._scheduler.preempt = counted  # type: ignore[method-assign]
    others = [bench.submit(text(9, i), max_tokens=60, n=1 + i % 2) for i in range(4)]
    for index in range(4):
        prompt = text(draw.randint(1, 12), seed=draw.randint(1, 3))
        fields = {**FIELDS, "beam_width": 2 + index % 3, "temperature": 0.9 * (index % 2)}
        fields["max_tokens"] = draw.randint(50, 70)
        searches.append((search(bench, prompt, **fields), prompt, fields))
    bench.finish()
    for request, prompt, fields in searches:
        assert found(request) == searched_alone(prompt, **fields)
    for one in others:
        check(one)
    assert waited >= 2 and bench.generator.preempted > waited
    bench.check_settled()


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_search_goes_on_where_it_was(steps: int) -> None:
    """Preempted after any number of steps: in its prompt, before and after a reorder, twice."""
    bench = Sharing(row_limit=10, sequences=4)
    prompt, scheduler = text(40), bench.generator._scheduler
    old = bench.submit([3], max_tokens=90)
    request = search(bench, prompt, **FIELDS)
    for _ in range(2):
        for _ in range(steps):
            bench.generator.advance(True)
        scheduler.preempt(scheduler.youngest())
        assert [track.request for track in scheduler.running] == [old]
    bench.finish()
    assert found(request) == searched_alone(prompt, **FIELDS)
    check(old)
    bench.check_settled()


def test_rebuilt_beams_compute_their_common_tokens_once() -> None:
    bench = Sharing(row_limit=64, sequences=4, pages=60)
    bench.generator = Generator(bench.stepper, bench.cache, 64)  # nothing is cached
    scheduler = bench.generator._scheduler
    bench.submit([3], max_tokens=60)
    fields = {**FIELDS, "max_tokens": 40}
    request = search(bench, text(100), **fields)
    for _ in range(30):
        bench.generator.advance(True)
    assert request.search is not None
    beams = [beam.tokens for beam in request.search.beams]
    common = next(i for i in range(99) if len({tokens[i] for tokens in beams}) > 1)
    assert common > 5 and not request.done
    scheduler.preempt(scheduler.youngest())
    before = len(bench.runner.steps)
    bench.finish()
    rows = [row.position for step in bench.runner.steps[before:] for row in step]
    assert [rows.count(position) for position in range(65, 100 + common)] == [1] * (35 + common)
    assert rows.count(100 + common) == 3
    assert found(request) == searched_alone(text(100), **fields)


def test_searches_start_with_the_pages_that_they_need_now() -> None:
    """Four of them; one may need nearly all pages."""
    bench = Sharing(pages=4 + 11, sequences=8, context=300)
    fields = {**FIELDS, "beam_width": 2, "max_tokens": 100}
    requests = [search(bench, [i], **fields) for i in range(4)]
    bench.generator.advance(True)
    assert all(request.started is not None for request in requests)
    bench.finish()
    for i, request in enumerate(requests):
        assert found(request) == searched_alone([i], **fields)
    assert bench.generator.preempted >= 2
    bench.check_settled()


def test_the_youngest_waits_and_the_oldest_never() -> None:
    bench = Sharing(pages=4 + 5, sequences=3)
    old, young = bench.submit(text(40, 1), max_tokens=70), bench.submit(text(40, 2), max_tokens=70)
    bench.finish()
    assert bench.generator.preempted == 1
    assert old.finished is not None and young.finished is not None
    assert old.finished < young.finished
    check(old)
    check(young)
    bench.check_settled()


def test_log_probabilities_of_a_prompt_are_noted_once() -> None:
    bench = Sharing(pages=4 + 5, sequences=3)
    bench.generator = Generator(bench.stepper, bench.cache, 64)  # every token is computed again
    bench.submit(text(40, 1), max_tokens=70)
    young = bench.submit(text(40, 2), max_tokens=70, prompt_logprobs=1)
    bench.finish()
    assert bench.generator.preempted == 1
    entries = young.result().prompt_logprobs
    assert entries is not None and len(entries) == 40
    check(young)


def test_what_was_computed_before_is_found_again() -> None:
    """The rebuilt sequence finds the pages of its own that nobody needed."""
    bench = Sharing(pages=4 + 8, sequences=3)
    requests = [bench.submit(text(60, i + 1), max_tokens=100) for i in range(2)]
    bench.finish()
    whole = sum(len(r.tokens) + 99 for r in requests)
    assert bench.generator.preempted >= 1 and bench.rows < whole + 160
    for request in requests:
        check(request)


def test_a_request_starts_with_the_pages_that_it_needs_now() -> None:
    bench = Sharing(pages=4 + 6, sequences=4)
    requests = [bench.submit([i], max_tokens=150) for i in range(3)]  # up to 5 pages each
    bench.generator.advance(True)
    assert all(request.started is not None for request in requests)
    bench.finish()
    for request in requests:
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 150)


def test_a_request_larger_than_all_pages_is_refused_at_once() -> None:
    bench = Sharing(pages=4 + 2)
    request = bench.submit(text(60), max_tokens=30)
    bench.generator.advance(True)
    with pytest.raises(RequestError, match="may need 3 KV pages"):
        request.result()


def test_sequences_of_the_token_api_are_never_preempted() -> None:
    bench = Sharing(pages=4 + 4)
    held = bench.cache.open()
    bench.cache.grow(held, 64)
    request = bench.submit(text(40), max_tokens=60)  # 4 pages in the end
    kept = bench.submit([1], max_tokens=3)
    with pytest.raises(RequestError, match="no room for the request"):
        bench.finish()
    with pytest.raises(RequestError, match="sequences hold the others"):
        request.result()
    bench.finish()
    assert bench.cache.is_open(held) and len(kept.result().token_ids) == 3


def test_the_boards_loop_gives_unused_pages_back() -> None:
    bench = Sharing(loop=True, pages=4 + 10)
    used: list[int] = []
    request = bench.submit(text(20), max_tokens=200)
    late: list[Request] = []

    def listen(delta: object) -> None:
        if len(request.samples[0].output) == 5:
            late.append(bench.submit(text(30, 2), max_tokens=4))

    request.on_delta = listen
    while bench.generator.advance(False):
        if len(used) == 1:  # the loop has just made way
            assert bench.cache.free_pages == 10 - 1
        used.append(bench.cache.free_pages)
        if late and not late[0].ended:
            assert len(request.samples[0].output) < 40  # it starts at once
    for one in (request, late[0]):
        assert list(one.result().token_ids) == greedy_tokens(one.tokens, one.params.max_tokens or 0)
    bench.check_settled()


class Adapters:
    """Slots of one adapter, whose weights may change while nobody uses it."""

    def __init__(self, digests: dict[str, bytes]) -> None:
        self.digests, self.attached = digests, 0

    def digest(self, name: str) -> bytes:
        if name not in self.digests:
            raise AdapterError(f"adapter {name!r} is not loaded")
        return self.digests[name]

    def has_room(self, name: str | None) -> bool:
        return True

    def attach(self, sequence: int, name: str) -> None:
        self.attached += 1


@pytest.mark.parametrize("change", [dict.clear, lambda digests: digests.update(a=b"new weights")])
def test_an_adapter_that_changed_meanwhile_ends_its_request_alone(
    change: Callable[[dict[str, bytes]], None],
) -> None:
    bench = Sharing(pages=4 + 5, sequences=3)
    adapters = Adapters(bench.digests)
    bench.source = PrefixSource(bench.cache, "fp16", adapters.digest)
    bench.generator = Generator(
        bench.stepper,
        bench.cache,
        64,
        None,
        adapters,
        source=bench.source,  # type: ignore[arg-type]
    )
    old = bench.submit(text(40, 1), max_tokens=70)
    young = bench.submit(text(40, 2), max_tokens=70, adapter="a")
    while not bench.generator.preempted:
        bench.generator.advance(True)
    assert adapters.attached == 1
    change(bench.digests)
    bench.finish()
    with pytest.raises(AdapterError, match="adapter 'a'"):
        young.result()
    check(old)
    bench.check_settled()


def test_the_adapter_is_attached_again() -> None:
    bench = Sharing(pages=4 + 5, sequences=3)
    adapters = Adapters(bench.digests)
    bench.generator = Generator(
        bench.stepper,
        bench.cache,
        64,
        None,
        adapters,
        source=bench.source,  # type: ignore[arg-type]
    )
    requests = [bench.submit(text(40, i), max_tokens=70, adapter="a") for i in (1, 2)]
    bench.finish()
    assert bench.generator.preempted == 1 and adapters.attached == 3
    for request in requests:
        check(request)
