"""Scripted boards that are replaced by empty ones: what every sequence has committed is computed
again, and it goes on with the tokens it would have had. Also with fewer rows and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import (
    FailureFields,
    HangError,
    LinkError,
    LoraError,
    ModelError,
    RequestError,
    RowsLostError,
)
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.spec.draft_model import DraftBoard, ModelDrafting
from lora_sdk.step.step import Row, StepResult, build_rows
from lora_sdk.step.tree_shape import TreeShape
from tests.scripted import Bench, ScriptedRunner, greedy_tokens, logits_of

LOST = FailureFields(abi.ERR_TIMEOUT, "TIMEOUT")
PROMPTS = [[1, 2, 3], list(range(40)), [9] * 33, list(range(30, 60)) * 3]


class Replaced(Bench):
    """The boards' steps `lost` (counted from 0, over all boards) fail and the boards are replaced.
    `row_limit` and `pages` are those of the new ones."""

    max_tokens = 8

    def __init__(
        self, lost: Sequence[int], row_limit: int = 64, pages: int = 40, loop: bool = False
    ) -> None:
        super().__init__(sequences=3)
        self.calls = self.replaced = 0
        self._lost, self._row_limit, self._new_pages = set(lost), row_limit, pages
        self._prepare(self.runner)
        self.stepper.recover = self._replace
        self.loop = GreedyLoop(self, self.stepper, self.cache)
        self.generator = Generator(self.stepper, self.cache, 16, self.loop if loop else None)

    def _prepare(self, runner: ScriptedRunner) -> None:
        def before() -> None:
            self.calls += 1
            if self.calls - 1 in self._lost:
                raise HangError("lost", failure=LOST)  # is not tried again

        runner.before_step = before

    @property
    def rows(self) -> int:
        return self.runner.rows

    def greedy(self, *arguments: object) -> None:
        """The loop of the boards that are there now."""
        self.runner.greedy(*arguments)  # type: ignore[arg-type]

    def _replace(self, error: LoraError) -> bool:
        self.runner = ScriptedRunner(self._new_pages, 3)
        self._prepare(self.runner)
        self.stepper.use(self.runner, self._row_limit)
        self.cache.lose(self._new_pages)
        self.replaced += 1
        return True


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize(("row_limit", "pages"), [(64, 40), (5, 40), (64, 22)])
def test_boards_lost_at_any_step_change_nothing(loop: bool, row_limit: int, pages: int) -> None:
    prompts = PROMPTS[2:3] if loop else PROMPTS
    for k in range(9 if loop else 14):
        bench = Replaced((k, k + 2), row_limit, pages, loop)
        requests = [bench.submit(prompt) for prompt in prompts]
        bench.finish(one_step=not loop)
        for request in requests:
            assert list(request.result().token_ids) == greedy_tokens(request.tokens, 8)
        assert bench.replaced >= 1
        bench.stepper.flush()
        assert bench.cache.free_slots == 128 and bench.cache.free_sequences == 3
        assert bench.cache.free_pages == pages - 4


def test_committed_positions_come_back_and_open_rows_are_named() -> None:
    bench = Replaced(())
    first = bench.cache.open()
    prompt = list(range(50))
    rows = build_rows(bench.cache, first, prompt)
    bench.stepper.run(rows)
    bench.cache.commit(first, [row.slot for row in rows])
    second = bench.cache.fork(first)
    tree = build_rows(bench.cache, second, [7, 8, 9], [-1, 0, 0])
    bench.stepper.run(tree)
    bench._lost.add(bench.calls)
    under = build_rows(bench.cache, second, [10], after=tree[2].slot, logits=[0])
    with pytest.raises(RowsLostError):
        bench.stepper.tried(lambda: bench.stepper.run(under, retry=True))
    bench.cache.release_slots([under[0].slot])
    assert bench.replaced == 1 and bench.cache.computed(second) == 0
    with pytest.raises(RowsLostError):
        bench.cache.commit(second, [tree[0].slot])
    third = bench.cache.fork(second)
    for sequence in (first, second, third):
        after = build_rows(bench.cache, sequence, [5], logits=[0])
        result = bench.stepper.run(after)
        assert result.logits is not None and bench.cache.length(sequence) == 50
        assert result.logits[0].tobytes() == logits_of([*prompt, 5]).tobytes()
        bench.cache.drop(sequence)
    bench.stepper.flush()
    assert bench.cache.free_slots == 128 and not bench.cache.has_lost


def test_a_draft_goes_on_with_the_tokens_that_it_has_accepted() -> None:
    """Those whose rows were open too."""
    bench = Replaced(())
    opened: Any = SimpleNamespace(plan=SimpleNamespace(row_limit=16, context=300))
    recovery: Any = None
    board = DraftBoard(opened, bench.cache, bench.stepper, recovery)
    drafting, tree = ModelDrafting(board, bench.cache.open()), TreeShape.by_width((1, 1))
    drafting.accept([1, 2, 3])
    assert drafting.propose(4, tree)[1] == greedy_tokens([1, 2, 3, 4], 1)[0]
    bench._replace(LinkError("lost"))
    drafting.accept([4])
    assert drafting.propose(5, tree)[1:] == greedy_tokens([1, 2, 3, 4, 5], 2)
    bench._lost.add(bench.calls + 1)  # the second level's, whose parent is lost
    drafting.accept([5])
    with pytest.raises(RowsLostError):
        drafting.propose(6, tree)
    assert drafting.propose(6, tree)[1:] == greedy_tokens([1, 2, 3, 4, 5, 6], 2)
    drafting.close()
    bench.stepper.flush()
    assert bench.cache.free_slots == 128


def test_lost_positions_without_pages_are_an_error() -> None:
    bench = Replaced(())
    first, second = bench.cache.open(), bench.cache.open()
    for sequence in (first, second):
        rows = build_rows(bench.cache, sequence, range(64))
        bench.stepper.run(rows)
        bench.cache.commit(sequence, [row.slot for row in rows])
    bench.cache.lose(4 + 3)
    bench.stepper.compute(first)
    with pytest.raises(RequestError, match="exhausted"):
        bench.stepper.compute(second)
    bench.cache.close(first)
    bench.stepper.flush()
    bench.stepper.compute(second)


def test_slots_that_are_all_taken_are_an_error_and_no_endless_wait() -> None:
    bench = Replaced(())
    sequence = bench.cache.open()
    rows = build_rows(bench.cache, sequence, range(9))
    bench.stepper.run(rows)
    bench.cache.commit(sequence, [row.slot for row in rows])
    bench.stepper.flush()
    bench.cache.lose()
    bench.cache.take_slots(128)
    with pytest.raises(RequestError, match="scratch slots"):
        bench.stepper.compute(sequence)


def test_inputs_that_were_no_tokens_come_back() -> None:
    """Committed, and in a fork."""
    seen: dict[tuple[int, int], float] = {}

    class Noting:
        def step(
            self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
        ) -> StepResult:
            for row in rows:
                if row.vector is not None:
                    seen[row.sequence, row.position] = float(row.vector[0])
            return bench.runner.step(rows, kv_ops, path)

    bench = Replaced(())
    bench.stepper.use(Noting(), 0)
    sequence = bench.cache.open()
    for at, value in enumerate((1.5, 2.5)):
        (slot,) = bench.cache.take_slots(1)
        bench.stepper.run([Row(sequence, at, 3, slot, vector=np.full(4, value, np.float16))])
        bench.cache.commit(sequence, [slot])
    child = bench.cache.fork(sequence)
    seen.clear()
    bench.runner = ScriptedRunner(40, 3)
    bench.cache.lose()
    for one in (sequence, child):
        bench.stepper.compute(one)
    of_child = {(child, 0): 1.5, (child, 1): 2.5}
    assert seen == {(sequence, 0): 1.5, (sequence, 1): 2.5, **of_child}


def split(run: Callable[[Bench], StepResult], limit: int) -> tuple[StepResult, list[int]]:
    bench = Bench(sequences=2)
    bench.stepper.use(bench.runner, limit)
    result = run(bench)
    return result, [len(rows) for rows in bench.runner.steps]


def test_more_rows_than_the_boards_take_run_as_several_steps() -> None:
    def run(bench: Bench) -> StepResult:
        first, second = bench.cache.open(), bench.cache.open()
        rows = build_rows(bench.cache, first, range(9), argmax=[2, 8])
        rows += build_rows(bench.cache, second, [4, 5, 6, 7], [-1, 0, 0, 1], logits=[0, 3])
        result = bench.stepper.run(rows)
        assert len(bench.cache.uncommitted(first)) == 9
        assert len(bench.cache.uncommitted(second)) == 4
        return result

    whole, _ = split(run, 0)
    found, sizes = split(run, 4)
    assert sizes == [4, 4, 4, 1] and found.rows == whole.rows == (2, 8, 9, 12)
    assert found.logits is not None and whole.logits is not None
    assert found.argmax is not None and whole.argmax is not None
    for index in (2, 3):  # of rows that request logits
        assert found.logits[index].tobytes() == whole.logits[index].tobytes()
    for index in (0, 1):
        assert found.argmax[1][index] == whole.argmax[1][index]


@pytest.mark.parametrize("error", [LinkError, ModelError])
def test_a_part_that_fails_drops_what_ran(error: type[LoraError]) -> None:
    bench = Bench(sequences=2)
    bench.stepper.use(bench.runner, 4)
    sequence = bench.cache.open()
    rows = build_rows(bench.cache, sequence, range(12))

    def fail() -> None:
        if bench.runner.steps:
            raise error("broken")

    bench.runner.before_step = fail
    with pytest.raises(error):
        bench.stepper.run(rows)
    bench.runner.before_step = lambda: None
    bench.stepper.flush()
    assert bench.cache.free_slots == 128 and not bench.cache.uncommitted(sequence)
