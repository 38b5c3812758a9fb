"""Steps that fail, at every point of a run, on scripted boards: once and twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lora_host.errors import LinkError, LoraError, RequestError, TransportError
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.greedy import GreedyLoop, OnToken
from lora_sdk.step.step import Row
from tests.scripted import Bench, greedy_tokens

PROMPTS = [[1, 2, 3], list(range(40)), [9] * 33]


class Failing(Bench):
    """The calls `fails` of the runner's step raise, counted from 0."""

    max_tokens = 8

    def __init__(
        self, fails: Sequence[int], loop: bool, error: type[LoraError] = LinkError
    ) -> None:
        super().__init__(sequences=2)
        self.generator = Generator(self.stepper, self.cache, 16, self.loop if loop else None)
        self.calls = 0
        self.one_step = not loop

        def before_step() -> None:
            self.calls += 1
            if self.calls - 1 in fails:
                raise error("board 0 port 1 to board 1 port 0 is down")

        self.runner.before_step = before_step

    def finish(self) -> list[LoraError]:
        """What the steps raised on the way to the end."""
        raised = []
        while True:
            try:
                if not self.generator.advance(self.one_step):
                    return raised
            except LoraError as error:
                raised.append(error)

    def check_books(self) -> None:
        self.runner.before_step = lambda: None
        self.stepper.flush()
        assert self.cache.free_slots == 128 and self.cache.free_pages == 36
        assert self.cache.free_sequences == 2


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS])
def test_one_failure_anywhere_changes_nothing(loop: bool, prompts: list[list[int]]) -> None:
    undisturbed = Failing((), loop)
    for prompt in prompts:
        undisturbed.submit(prompt)
    undisturbed.finish()
    assert undisturbed.calls >= 8
    for k in range(undisturbed.calls):
        failing = Failing((k,), loop)
        requests = [failing.submit(prompt) for prompt in prompts]
        assert failing.finish() == []
        for request in requests:
            assert list(request.result().token_ids) == greedy_tokens(request.tokens, 8)
        assert failing.stepper.redone == 1
        failing.check_books()


@pytest.mark.parametrize("loop", [False, True])
def test_two_failures_in_a_row_end_what_was_in_the_step(loop: bool) -> None:
    """Two run at a time; the third waits, and a later one takes a place too."""
    calls = 26
    for k in range(calls):
        failing = Failing((k, k + 1), loop)
        requests = [failing.submit(prompt) for prompt in [*PROMPTS, [4]]]
        raised = failing.finish()
        ended = [request for request in requests if request.error is not None]
        assert len(raised) <= 1 and len(ended) <= 2
        assert bool(raised) == bool(ended)
        for request in requests:
            if request.error is None:
                assert list(request.result().token_ids) == greedy_tokens(request.tokens, 8)
            else:
                assert request.error is raised[0]
        failing.check_books()


def test_failures_at_different_tokens_of_the_loop_are_each_redone() -> None:
    failing = Failing((4, 8, 12), loop=True)
    request = failing.submit([1, 2], max_tokens=12)
    assert failing.finish() == []
    assert list(request.result().token_ids) == greedy_tokens([1, 2], 12)
    assert failing.stepper.redone == 3
    failing.check_books()


class Shown(Failing):
    """The boards' loop shows a token whose step then fails: its row is to run again."""

    def __init__(self, rows: int) -> None:
        super().__init__((), loop=True)
        self.left = [rows]
        loop = GreedyLoop(self, self.stepper, self.cache)
        self.generator = Generator(self.stepper, self.cache, 16, loop)

    @property
    def rows(self) -> int:
        return self.runner.rows

    def greedy(
        self, sequence: int, position: int, run: list[int], slots: tuple[int, int, int],
        max_tokens: int, on_token: OnToken, *more: object
    ) -> None:  # fmt: skip
        if not self.left:
            self.runner.greedy(sequence, position, run, slots, max_tokens, on_token)
            return
        self.runner.greedy(sequence, position, run, slots, self.left.pop(), on_token)
        on_token(greedy_tokens([*self.cache.tokens(sequence), *run], 1)[0])
        raise LinkError("board 0 port 1 to board 1 port 0 is down")


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_a_token_that_was_shown_before_its_step_failed_is_not_shown_twice(rows: int) -> None:
    bench = Shown(rows)
    request = bench.submit([1, 2], max_tokens=12)
    assert bench.finish() == []
    assert list(request.result().token_ids) == greedy_tokens([1, 2], 12)
    assert bench.stepper.redone == 1
    bench.check_books()


def test_a_bad_argument_is_not_tried_again() -> None:
    failing = Failing((1,), loop=False, error=RequestError)
    request = failing.submit([1, 2])
    assert len(failing.finish()) == 1 and failing.stepper.redone == 0
    assert isinstance(request.error, RequestError)
    failing.check_books()


def test_an_interrupt_reaches_its_own_thread_alone() -> None:
    """Others' requests end with an error that an event loop survives."""
    bench = Failing((), loop=False)
    request = bench.submit([1, 2])

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.runner.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.generator.advance()
    with pytest.raises(TransportError, match="interrupted by KeyboardInterrupt"):
        request.result()
    bench.runner.before_step = lambda: None
    after = bench.submit([3])
    assert bench.finish() == []
    assert list(after.result().token_ids) == greedy_tokens([3], 8)
    bench.check_books()


def test_slots_that_are_all_held_are_an_error_and_no_endless_wait() -> None:
    bench = Failing((), loop=False)
    sequence = bench.cache.open()
    for start in range(0, 128, 64):
        slots = bench.cache.take_slots(64)
        position = range(start, start + 64)
        parents = [start - 1, *slots[:-1]]
        bench.stepper.run(
            [Row(sequence, p, 5, s, q) for p, s, q in zip(position, slots, parents, strict=True)]
        )
    request = bench.submit([1, 2])
    (raised,) = bench.finish()
    assert "every scratch slot" in str(raised) and request.error is raised
    bench.cache.drop(sequence)
    after = bench.submit([3])
    assert bench.finish() == []
    assert list(after.result().token_ids) == greedy_tokens([3], 8)
