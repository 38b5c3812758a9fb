"""Calls of a KV cache on scripted boards, and what its rows see; random calls against lists."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from lora_host.errors import RequestError
from lora_sdk.kv.pages import held
from lora_sdk.step.step import build_rows
from tests.scripted import Bench
from tests.sharing import text

PROBE = 5  # the token of a row that looks


def feed(bench: Bench, sequence: int, tokens: list[int]) -> None:
    """Run tokens as chains of at most 64 rows and commit them."""
    for start in range(0, len(tokens), 64):
        rows = build_rows(bench.cache, sequence, tokens[start : start + 64])
        bench.stepper.run(rows)
        bench.cache.commit(sequence, [row.slot for row in rows])


def sees(bench: Bench, sequence: int) -> list[int]:
    """Tokens that a new row of the sequence sees on the boards; the row is dropped again."""
    rows = build_rows(bench.cache, sequence, [PROBE], logits=[0])
    bench.stepper.run(rows)
    seen = bench.runner._seen(rows[0])
    bench.cache.drop(sequence)
    return seen[:-1]


def in_window(tokens: list[int], window: int) -> list[int]:
    """What a row after `tokens` sees before itself, of `window` positions; 0: all."""
    return [*tokens, PROBE][-window:-1]


def check_random_calls(
    data: st.DataObject, bench: Bench, replace_boards: Callable[[int], None] | None = None
) -> None:
    """Random feeding, trees, forks, reorders, drops and closes, and lost boards with
    `replace_boards` (given max rows of a step): sequences have their own tokens and no page is
    lost."""
    expected: dict[int, list[int]] = {}
    actions = ["open", "feed", "feed", "tree", "fork", "reorder", "close", "check"]
    if replace_boards is not None:
        actions.append("lose")
    longest = min(100, bench.runner.scratch - 2)
    for _ in range(data.draw(st.integers(5, 30))):
        action = data.draw(st.sampled_from(actions))
        if action == "open" or not expected:
            if bench.cache.free_sequences:
                expected[bench.cache.open()] = []
            continue
        sequence = data.draw(st.sampled_from(sorted(expected)))
        tokens = text(data.draw(st.integers(1, longest)), data.draw(st.integers(0, 9)))
        bench.stepper.flush()
        try:
            if action == "feed":
                bench.cache.grow(sequence, len(expected[sequence]) + len(tokens))
                feed(bench, sequence, tokens)
                expected[sequence] += tokens
            elif action == "tree":
                chain = tokens[:9]
                parents = [*range(-1, len(chain) - 1), 0, 0]
                rows = build_rows(bench.cache, sequence, [*chain, 1, 2], parents)
                bench.stepper.run(rows)
                bench.cache.commit(sequence, [rows[0].slot, rows[-1].slot])
                expected[sequence] += [tokens[0], 2]
            elif action == "fork" and bench.cache.free_sequences:
                expected[bench.cache.fork(sequence)] = list(expected[sequence])
            elif action == "reorder":
                numbers = sorted(expected)
                size = len(numbers)
                drawn = data.draw(st.lists(st.sampled_from(numbers), min_size=size, max_size=size))
                parents_of = dict(zip(numbers, drawn, strict=True))
                bench.cache.reorder(parents_of)
                expected = {child: list(expected[parents_of[child]]) for child in numbers}
            elif action == "close":
                bench.cache.close(sequence)
                del expected[sequence]
            elif action == "lose" and replace_boards is not None:
                replace_boards(data.draw(st.sampled_from([5, 64])))
        except RequestError as error:
            assert "exhausted" in str(error)
            bench.cache.drop(sequence)
    _check_settled(bench, expected)


def _check_settled(bench: Bench, expected: dict[int, list[int]]) -> None:
    bench.stepper.flush()
    for sequence, tokens in expected.items():
        assert list(bench.cache.tokens(sequence)) == tokens
        bench.cache.trim(sequence)
        if bench.cache.free_pages or len(tokens) % 32:
            assert sees(bench, sequence) == in_window(tokens, bench.runner.window)
    used = {page for s in expected for page in held(bench.cache.pages(s))}
    bench.stepper.flush()
    assert bench.cache.free_pages == bench.cache.total_pages - len(used)
    assert bench.cache.free_slots == bench.runner.scratch
