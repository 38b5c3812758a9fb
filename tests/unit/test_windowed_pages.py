"""Sequences of models with a window in every layer, on scripted boards: they give pages back that
no row sees any more, and every row sees what it should, also after the boards were replaced."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host.errors import RequestError
from lora_sdk.kv.pages import RETURNED, KvSequence, held, pages_for
from tests.cache_calls import check_random_calls, feed, in_window, sees
from tests.scripted import Bench, ScriptedRunner, greedy_tokens
from tests.sharing import Sharing, text

WINDOWS = (1, 2, 31, 32, 33, 34, 70)


def replace_boards(bench: Bench, row_limit: int = 64) -> None:
    """Empty boards in place of the old ones; all sequences are computed again."""
    old = bench.runner
    bench.runner = ScriptedRunner(len(old.pages), len(old.tables), old.scratch, old.window)
    bench.stepper.use(bench.runner, row_limit)
    bench.cache.lose()


@pytest.mark.parametrize("window", [*range(1, 100), 280])
def test_the_pages_that_rows_see_are_kept(window: int) -> None:
    sequence = KvSequence()
    for length in range(1, 400):
        sequence.tokens.append(0)
        sequence.pages += [length] * (pages_for(length) - len(sequence.pages))
        sequence.leave(window)
        first = max(0, length + 1 - window) // 32  # the next row's first tile
        assert RETURNED not in sequence.pages[first:]
        assert len(held(sequence.pages)) <= pages_for(window) + 1


@pytest.mark.parametrize("window", WINDOWS)
def test_a_long_sequence_has_few_pages(window: int) -> None:
    bench = Bench(pages=4 + 10, window=window, context=1000)
    sequence = bench.cache.open()
    tokens: list[int] = []
    for turn in range(12):
        new = text(60, seed=turn)
        feed(bench, sequence, new)
        tokens += new
        bench.stepper.flush()
        assert sees(bench, sequence) == in_window(tokens, window)
        used = held(bench.cache.pages(sequence))
        assert bench.cache.free_pages == 10 - len(used) and len(used) <= pages_for(window) + 1
    assert len(tokens) > 10 * 32
    replace_boards(bench)
    assert sees(bench, sequence) == in_window(tokens, window)
    bench.cache.close(sequence)
    bench.stepper.flush()
    assert bench.cache.free_pages == 10


def test_without_a_window_nothing_is_given_back() -> None:
    bench = Bench(pages=4 + 10, context=1000)
    sequence = bench.cache.open()
    feed(bench, sequence, text(300))
    assert RETURNED not in bench.cache.pages(sequence)
    with pytest.raises(RequestError, match="exhausted"):
        feed(bench, sequence, text(60))


@pytest.mark.parametrize("loop", [False, True])
def test_requests_whose_whole_texts_would_not_fit(loop: bool) -> None:
    """Three times 240 positions in 14 pages of 32: with a window none of them waits."""
    for window, preempted in ((20, False), (0, True)):
        bench = Sharing(loop=loop, pages=4 + 14, context=300, window=window, sequences=3)
        requests = [bench.submit(text(40, seed), max_tokens=200) for seed in range(3)]
        bench.finish(one_step=not loop)
        for request in requests:
            wanted = greedy_tokens(request.tokens, 200, window)
            assert list(request.result().token_ids) == wanted
        assert (bench.generator.preempted > 0) == preempted
        bench.check_settled()


@pytest.mark.parametrize("pages", [12, 60])
def test_prefixes_are_found_again_or_computed_again(pages: int) -> None:
    """Pages that were given back are cached until others take them."""
    bench = Sharing(pages=4 + pages, context=400, window=40, sequences=4)
    prompt = text(200)
    first = bench.run(prompt, max_tokens=20)
    bench.run(text(220, seed=9))
    second = bench.run([*prompt, 3], max_tokens=20)
    together = [bench.submit([*prompt, index], max_tokens=30, n=2) for index in range(4)]
    bench.finish()
    assert (second.result().cached_tokens > 192) == (pages == 60)
    for request in (first, second, *together):
        for output in request.result().outputs:
            wanted = greedy_tokens(request.tokens, len(output.token_ids), 40)
            assert list(output.token_ids) == wanted
    bench.check_settled()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_order_of_calls_leaves_each_sequence_what_its_window_has(data: st.DataObject) -> None:
    window = data.draw(st.sampled_from(WINDOWS))
    bench = Bench(pages=4 + 24, window=window, context=2000)
    check_random_calls(data, bench, lambda row_limit: replace_boards(bench, row_limit))
