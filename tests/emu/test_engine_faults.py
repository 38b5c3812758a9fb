"""A step that fails is redone once; without recovery, a second failure ends the requests of that
step and no other. Real faults of the emulated boards, planted for the length of chosen steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import CommandError, HangError, LoraError, TransportError
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.step.step import Row, StepResult
from lora_sdk.step.stepper import StepRunner
from tests.variants import variant, write_checkpoint

PROMPTS = [[(7 * i + 11 * k) % 287 + 3 for i in range(5 + 9 * k)] for k in range(16)]
PARAMS = [
    SamplingParams(max_tokens=10, ignore_eos=True, temperature=0.8 * (k % 2), seed=k)
    for k in range(16)
]
FAULTS = [(abi.FAULT_COMPLETION_LOST, 0), (abi.FAULT_UNIT_STUCK, abi.UNIT_VFU)]


class Planted:
    """The engine's runner with a fault on board 1 while chosen steps run: `chosen` says which, and
    `count` of them in a row fail."""

    def __init__(self, engine: Engine, fault: tuple[int, int], count: int) -> None:
        self.chosen: Callable[[Sequence[Row]], bool] = lambda rows: False
        self.failed: list[set[int]] = []  # sequences of each step that failed
        self._engine = engine
        self._runner: StepRunner = engine._stepper._runner
        self._fault, self._count = fault, count
        engine._stepper._runner = self

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult:
        if len(self.failed) == self._count or not (self.failed or self.chosen(rows)):
            return self._runner.step(rows, kv_ops, path)
        emulated = self._engine.cluster.emulated
        assert emulated is not None
        emulated.fault(1, self._fault[0], self._fault[1])
        try:
            return self._runner.step(rows, kv_ops, path)
        except LoraError:
            self.failed.append({row.sequence for row in rows})
            raise
        finally:
            emulated.fault(1, abi.FAULT_NONE)

    def remove(self) -> None:
        self._engine._stepper._runner = self._runner


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("engine_faults") / "model"
    write_checkpoint(variant("llama_narrow"), folder)
    # Every prompt is computed, so that the steps are the same in each test.
    with Engine(folder, boards=2, max_sequences=9, recovery="off", prefix_cache=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def expected(engine: Engine) -> list[tuple[int, ...]]:
    results = [engine.generate(p, one) for p, one in zip(PROMPTS, PARAMS, strict=True)]
    return [result.token_ids for result in results if isinstance(result, Result)]


def gather(engine: Engine) -> list[Result | BaseException]:
    """All sixteen at once; what each ended with."""

    async def work() -> list[Result | BaseException]:
        pairs = zip(PROMPTS, PARAMS, strict=True)
        return await asyncio.gather(
            *(engine.agenerate(*pair) for pair in pairs), return_exceptions=True
        )

    return asyncio.run(work())


def eight_decode(planted: Planted, own: int) -> Callable[[Sequence[Row]], bool]:
    """Whether a step holds eight requests, and one of them decodes already."""

    def chosen(rows: Sequence[Row]) -> bool:
        sequences = {row.sequence for row in rows}
        return len(sequences - {own}) == 8 and any(row.position > 40 for row in rows)

    return chosen


@pytest.mark.parametrize("fault", FAULTS)
def test_a_transient_failure_changes_no_token(
    engine: Engine, expected: list[tuple[int, ...]], fault: tuple[int, int]
) -> None:
    before = engine.redone_steps
    planted = Planted(engine, fault, count=1)
    planted.chosen = eight_decode(planted, own=-1)
    try:
        found = gather(engine)
    finally:
        planted.remove()
    assert len(planted.failed) == 1 and len(planted.failed[0]) == 8
    assert [one.token_ids if isinstance(one, Result) else one for one in found] == expected
    assert engine.redone_steps == before + 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_persistent_failure_ends_the_requests_of_its_step_alone(
    engine: Engine, expected: list[tuple[int, ...]], fault: tuple[int, int]
) -> None:
    sequence = engine.open_sequence()
    logits = engine.prefill(sequence, PROMPTS[3])
    rows = engine.rows(sequence, [17, 18])
    tree = engine.step(rows)  # uncommitted while the others fail
    planted = Planted(engine, fault, count=2)
    planted.chosen = eight_decode(planted, own=sequence)
    try:
        found = gather(engine)
    finally:
        planted.remove()
    assert planted.failed[0] == planted.failed[1] and len(planted.failed[0]) == 8
    failed = [one for one in found if not isinstance(one, Result)]
    assert len(failed) == 8
    for error in failed:
        assert isinstance(error, (TransportError, CommandError, HangError))
        assert "board 1" in str(error)
    for one, tokens in zip(found, expected, strict=True):
        assert not isinstance(one, Result) or one.token_ids == tokens
    engine.commit(sequence, [row.slot for row in rows])
    after = engine.prefill(sequence, [19])
    assert tree.logits is not None
    check_sequence(engine, sequence, [*PROMPTS[3], 17, 18, 19], [logits, *tree.logits, after])
    assert engine._cache.free_sequences == 9


def check_sequence(
    engine: Engine, sequence: int, tokens: list[int], rows: Sequence[np.ndarray]
) -> None:
    """The last logits of a sequence that lived through failures are those of an undisturbed one."""
    engine.release(sequence)
    fresh = engine.open_sequence()
    first = len(tokens) - len(rows) + 1
    found = [engine.prefill(fresh, tokens[:first])]
    found += [engine.prefill(fresh, [token]) for token in tokens[first:]]
    engine.release(fresh)
    assert [row.tobytes() for row in found] == [row.tobytes() for row in rows]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_boards_own_loop_goes_on_from_its_pending_token(
    engine: Engine, expected: list[tuple[int, ...]], fault: tuple[int, int]
) -> None:
    """The fault lasts from a token of the loop to the step after the failure. A record that is lost
    when all tokens are known costs nothing."""
    emulated = engine.cluster.emulated
    assert emulated is not None
    before, tokens = engine.redone_steps, []
    runner = engine._stepper._runner

    def plant(delta: object) -> None:
        tokens.append(delta)
        if len(tokens) == 4:
            emulated.fault(1, *fault)

    class Cleared:
        def step(self, *step: object) -> StepResult:
            emulated.fault(1, abi.FAULT_NONE)
            return runner.step(*step)  # type: ignore[arg-type]

    engine._stepper._runner = Cleared()
    try:
        result = engine.generate(PROMPTS[0], PARAMS[0], on_delta=plant)
    finally:
        engine._stepper._runner = runner
        emulated.fault(1, abi.FAULT_NONE)
    assert isinstance(result, Result) and result.token_ids == expected[0]
    assert engine.redone_steps == before + (fault[0] == abi.FAULT_UNIT_STUCK)


def test_a_loop_that_fails_again_ends_its_request(
    engine: Engine, expected: list[tuple[int, ...]]
) -> None:
    emulated = engine.cluster.emulated
    assert emulated is not None
    with pytest.raises(TransportError, match=r"board 1.*completion"):
        engine.generate(
            PROMPTS[0],
            PARAMS[0],
            on_delta=lambda delta: emulated.fault(1, abi.FAULT_COMPLETION_LOST),
        )
    emulated.fault(1, abi.FAULT_NONE)
    result = engine.generate(PROMPTS[0], PARAMS[0])
    assert isinstance(result, Result) and result.token_ids == expected[0]
