"""Prefixes shared between requests, on scripted boards: fewer rows, equal tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host.errors import LinkError
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.kv_source import PrefixSource
from lora_sdk.kv.prefix_index import PrefixIndex, page_digest, page_digests, root_digest
from lora_sdk.sampling import Sampler, SamplingParams
from tests.scripted import VOCABULARY, greedy_tokens, logits_of
from tests.sharing import Sharing, text


def test_a_later_request_computes_only_what_differs() -> None:
    bench = Sharing()
    first = bench.run(text(100))
    before = bench.rows
    second = bench.run([*text(100), 3, 4])
    assert first.result().cached_tokens == 0
    # The first request ran 104 tokens: 3 full pages, and 8 positions of one more.
    shared = 100 if first.samples[0].output[0] != 3 else 101
    assert second.result().cached_tokens == shared
    assert bench.rows - before == 102 - shared + 4
    for request in (first, second):
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 5)
    bench.check_settled()


@pytest.mark.parametrize("loop", [False, True])
def test_a_chat_computes_only_new_tokens(loop: bool) -> None:
    bench = Sharing(loop=loop, context=800, pages=60)
    history: list[int] = []
    known = 0
    for turn in range(20):
        history += text(11, seed=turn + 2)
        before = bench.rows
        request = bench.submit(history, max_tokens=20)
        bench.finish(one_step=not loop)
        assert list(request.result().token_ids) == greedy_tokens(history, 20)
        assert request.result().cached_tokens == known
        assert bench.rows - before == len(history) - known + 19
        history += request.result().token_ids
        known = len(history) - 1  # the last token was never run
    bench.check_settled()


def test_requests_that_arrive_together_compute_their_prefix_once() -> None:
    bench = Sharing(sequences=16, pages=40)
    prefix = text(150)
    requests = [bench.submit([*prefix, i, i + 1], max_tokens=8) for i in range(16)]
    most = 0
    while bench.generator.advance(True):
        held = {page for number in range(16) if bench.cache.is_open(number)
                for page in bench.cache.pages(number)}  # fmt: skip
        most = max(most, len(held))
    assert most == 4 + 16  # 4 full pages once, and the last one of each
    # 128 tokens once; the others copy none of the 22 after them, for no sequence had ended.
    assert bench.rows == 128 + 16 * (24 + 7)
    for request in requests:
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 8)
    bench.check_settled()


def test_64_live_requests_hold_their_900_tokens_once() -> None:
    bench = Sharing(sequences=64, pages=4 + 28 + 2 * 64, context=1000)
    prefix = text(900)
    requests = [bench.submit([*prefix, i % 50, i // 50], max_tokens=22) for i in range(64)]
    most = live = 0
    while bench.generator.advance(True):
        opened = [number for number in range(64) if bench.cache.is_open(number)]
        pages = {page for number in opened for page in bench.cache.pages(number)}
        most, live = max(most, len(pages)), max(live, len(opened))
    assert live == 64 and most == 28 + 64  # full pages once, and the last one of each
    assert bench.rows == 896 + 64 * (6 + 21)
    for request in requests:
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 22)
    bench.check_settled()


def test_a_follower_goes_on_alone_when_the_first_one_is_cancelled() -> None:
    bench = Sharing(row_limit=8)
    first, second = bench.submit(text(120)), bench.submit(text(120))
    bench.generator.advance(True)
    assert bench.cache.length(0) == 8 and bench.cache.length(1) == 0
    first.cancel()
    bench.finish()
    assert list(second.result().token_ids) == greedy_tokens(text(120), 5)
    bench.check_settled()


def test_at_least_one_token_is_computed() -> None:
    for count in (1, 31, 32, 33, 64, 65):
        bench = Sharing()
        bench.run(text(count))
        again = bench.run(text(count))
        assert again.result().cached_tokens == count - 1
        assert list(again.result().token_ids) == greedy_tokens(text(count), 5)


def test_adapters_salts_and_log_probabilities_share_nothing() -> None:
    bench = Sharing()
    prompt = text(70)
    for fields in (
        {},
        {"adapter": "a"},
        {"adapter": "b"},
        {"cache_salt": "x"},
        {"cache_salt": "y"},
    ):
        assert bench.run(prompt, **fields).result().cached_tokens == 0
        assert bench.run(prompt, **fields).result().cached_tokens == 69
    bench.digests["a"] = b"loaded again, other weights"
    assert bench.run(prompt, adapter="a").result().cached_tokens == 0
    scored = bench.run(prompt, prompt_logprobs=1)
    assert scored.result().cached_tokens == 0
    assert len(scored.result().prompt_logprobs or ()) == 70


def test_samples_share_a_cached_prompt() -> None:
    bench = Sharing()
    bench.run(text(45))
    request = bench.run(text(45), n=3, temperature=1.0)
    assert request.result().cached_tokens == 44
    for sample, output in enumerate(request.result().outputs):
        sampler = Sampler(SamplingParams(temperature=1.0), VOCABULARY, 7, sample)
        tokens: list[int] = []
        for _ in range(5):
            seen = [*text(45), *tokens]
            tokens.append(sampler.choose(logits_of(seen), len(seen), text(45), tokens)[0])
        assert list(output.token_ids) == tokens
    bench.check_settled()


def test_the_least_recently_used_page_goes_first() -> None:
    bench = Sharing(pages=4 + 9)
    for seed in (1, 2, 3):
        bench.run(text(70, seed), max_tokens=2)  # 3 pages each
    bench.run(text(70, 1), max_tokens=2)
    bench.run(text(70, 4), max_tokens=2)
    use = bench.cache.use(bench.source.counts, 0)
    assert use.evicted >= 3
    assert bench.run(text(70, 1), max_tokens=2).result().cached_tokens == 69
    assert bench.run(text(70, 2), max_tokens=2).result().cached_tokens == 0


def test_a_step_that_may_not_have_run_empties_the_cache() -> None:
    bench = Sharing()
    bench.run(text(70))

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.submit([1])
    bench.runner.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.generator.advance(True)
    bench.runner.before_step = lambda: None
    again = bench.run(text(70))
    assert again.result().cached_tokens == 0
    assert list(again.result().token_ids) == greedy_tokens(text(70), 5)


def test_a_failed_step_leaves_cached_pages_usable() -> None:
    bench = Sharing()
    bench.run(text(70))

    def fail() -> None:
        raise LinkError("cable out")

    failing = bench.submit([*text(70), 9])
    bench.runner.before_step = fail
    with pytest.raises(LinkError):
        while bench.generator.advance(True):  # once more, then it ends
            pass
    bench.runner.before_step = lambda: None
    with pytest.raises(LinkError):
        failing.result()
    again = bench.run([*text(70), 8])
    assert again.result().cached_tokens >= 64
    assert list(again.result().token_ids) == greedy_tokens([*text(70), 8], 5)
    bench.check_settled()


def test_sequences_of_the_token_api_are_never_shared() -> None:
    bench = Sharing()
    sequence = bench.cache.open()
    bench.cache.grow(sequence, 64)
    bench.cache.committed_elsewhere(sequence, text(64))  # no row wrote these pages
    bench.cache.close(sequence)
    assert bench.run(text(64)).result().cached_tokens == 0


def test_tokens_are_compared_even_if_digests_are_equal() -> None:
    index, root = PrefixIndex(), root_digest(b"x")
    digest = page_digest(root, range(32))
    index.add(5, root, range(32), digest)
    assert index.find(digest, root, tuple(range(32))) == 5
    assert index.find(digest, root, (*range(31), 99)) is None
    assert index.find(digest, root_digest(b"y"), tuple(range(32))) is None
    assert index.longest(root, [0, 1, 2, 9]) == (5, 3)
    index.remove(5)
    assert index.find(digest, root, tuple(range(32))) is None
    assert index.longest(root, [0]) == (-1, 0)


def test_digests_cover_every_token_before_them() -> None:
    root = root_digest(b"a", b"bc")
    assert root != root_digest(b"ab", b"c")
    whole = page_digests(root, range(100), 32)
    assert len(whole) == 4 and whole[0] == root
    changed = page_digests(root, [7, *range(1, 100)], 32)
    assert not set(whole[1:]) & set(changed[1:])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_mix_of_prompts_gives_the_tokens_of_each_alone(data: st.DataObject) -> None:
    bench = Sharing(
        row_limit=data.draw(st.sampled_from([4, 16, 64])),
        loop=data.draw(st.booleans()),
        pages=4 + data.draw(st.integers(8, 20)),
    )
    stems = [text(count, seed) for seed, count in ((1, 40), (2, 64), (3, 90))]
    requests = []
    for _ in range(data.draw(st.integers(2, 12))):
        stem = data.draw(st.sampled_from(stems))
        prompt = [*stem[: data.draw(st.integers(1, len(stem)))], *data.draw(
            st.lists(st.integers(0, 3), max_size=40))]  # fmt: skip
        requests.append(bench.submit(prompt, max_tokens=data.draw(st.integers(1, 30))))
        if data.draw(st.booleans()):
            bench.finish(one_step=data.draw(st.booleans()))
        if data.draw(st.integers(0, 5)) == 0:
            requests[-1].cancel()
    bench.finish(one_step=data.draw(st.booleans()))
    for request in requests:
        output = request.result().outputs[0]
        assert list(output.token_ids) == greedy_tokens(request.tokens, len(output.token_ids))
        assert output.finish_reason == "cancelled" or len(output.token_ids) == (
            request.params.max_tokens
        )
    bench.check_settled()


def test_the_type_of_the_kv_cache_is_part_of_a_prefix() -> None:
    bench = Sharing()
    bench.run(text(70))
    for kind, cached in (("int8-heads", 0), ("fp16", 69)):
        source = PrefixSource(bench.cache, kind, lambda name: b"")
        bench.generator = Generator(bench.stepper, bench.cache, 64, source=source)
        assert bench.run(text(70)).result().cached_tokens == cached


def test_cached_pages_go_before_a_running_sequence_waits() -> None:
    bench = Sharing(pages=4 + 8, sequences=3)
    bench.run(text(200, 9), max_tokens=1)  # 7 pages stay
    requests = [bench.submit(text(40, i), max_tokens=70) for i in (1, 2)]  # 4 pages each
    bench.finish()
    assert bench.cache.use(bench.source.counts, 0).evicted >= 7
    assert bench.generator.preempted == 0
    for request in requests:
        assert list(request.result().token_ids) == greedy_tokens(request.tokens, 70)
    bench.check_settled()
