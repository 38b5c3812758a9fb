"""Many callers at once: asyncio's loop never waits for a step, cancelling takes effect at the next
steps, and equal requests take equally long, whether threads or tasks ask."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from lora_host.errors import RequestError
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.engine.requests import Request
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.step.step import Row, StepResult
from lora_sdk.step.stepper import StepRunner
from tests.variants import variant, write_checkpoint

STEP = 0.08  # seconds that a step takes at least, as a larger model's does
PARAMS = SamplingParams(max_tokens=6, ignore_eos=True)
PROMPT = [5, 6, 7]


class Slow:
    """The engine's own runner, whose steps take as long as a larger model's."""

    def __init__(self, runner: StepRunner) -> None:
        self.runner = runner
        self.steps: list[set[int]] = []  # sequences of each step

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult:
        time.sleep(STEP)
        self.steps.append({row.sequence for row in rows})
        return self.runner.step(rows, kv_ops, path)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("concurrency") / "model"
    write_checkpoint(variant("llama_narrow"), folder)
    with Engine(folder, max_sequences=64) as opened:
        yield opened


@pytest.fixture
def slow(engine: Engine) -> Iterator[Slow]:
    stepper = engine._stepper
    slow = Slow(stepper._runner)
    stepper._runner = slow
    yield slow
    stepper._runner = slow.runner


@pytest.fixture(scope="module")
def expected(engine: Engine) -> tuple[int, ...]:
    result = engine.generate(PROMPT, PARAMS)
    assert isinstance(result, Result)
    return result.token_ids


async def measure_lag(lags: list[float]) -> None:
    """How much later than asked for the loop comes back, once every 5 ms."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.005)
        lags.append(time.monotonic() - began - 0.005)


class Callers:
    """So many equal requests of threads and of tasks; how long each took, and the loop's lags."""

    def __init__(self, engine: Engine, threads: int, tasks: int) -> None:
        self.engine = engine
        self.seconds: list[float] = []
        self.tokens: list[tuple[int, ...]] = []
        self.lags: list[float] = []
        self.counts = threads, tasks

    def _note(self, began: float, result: object) -> None:
        assert isinstance(result, Result)
        self.seconds.append(time.monotonic() - began)
        self.tokens.append(result.token_ids)

    def _thread(self) -> None:
        began = time.monotonic()
        self._note(began, self.engine.generate(PROMPT, PARAMS))

    async def _task(self) -> None:
        began = time.monotonic()
        self._note(began, await self.engine.agenerate(PROMPT, PARAMS))

    async def run(self) -> None:
        threads = [threading.Thread(target=self._thread) for _ in range(self.counts[0])]
        starter = threading.Thread(target=lambda: [thread.start() for thread in threads])
        watch = asyncio.create_task(measure_lag(self.lags))
        tasks = [asyncio.create_task(self._task()) for _ in range(self.counts[1])]
        starter.start()
        await asyncio.gather(*tasks)
        while starter.is_alive():
            await asyncio.sleep(0.01)
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0.01)
        watch.cancel()


@pytest.mark.parametrize("threads, tasks", [(100, 100), (200, 0), (0, 200)])
def test_two_hundred_callers(
    engine: Engine, slow: Slow, expected: tuple[int, ...], threads: int, tasks: int
) -> None:
    callers = Callers(engine, threads, tasks)
    asyncio.run(callers.run())
    assert callers.tokens == [expected] * 200
    seconds = sorted(callers.seconds)
    assert seconds[197] <= 3 * statistics.median(seconds)
    if tasks:
        lags = sorted(callers.lags)  # a busy machine stretches some of them
        assert lags[int(0.95 * len(lags))] < STEP / 2
    assert len(slow.steps) < 60  # four rounds of 64, 64, 64 and 8 sequences


def test_requests_are_served_in_the_order_they_came(engine: Engine, slow: Slow) -> None:
    """With a single sequence free, the queue is the order of the results."""
    held = [engine.open_sequence() for _ in range(63)]
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    order: list[int] = []

    async def ask(number: int) -> None:
        await engine.agenerate(PROMPT, params)
        order.append(number)

    async def work() -> None:
        await asyncio.gather(*(ask(i) for i in range(12)))

    asyncio.run(work())
    for sequence in held:
        engine.release(sequence)
    assert order == list(range(12))


def test_a_cancelled_task_frees_its_sequence_within_two_steps(
    engine: Engine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Request] = []
    adopt = engine._generator.adopt
    monkeypatch.setattr(
        engine._generator, "adopt", lambda request: (requests.append(request), adopt(request))
    )
    long = SamplingParams(max_tokens=300, ignore_eos=True)

    async def work() -> int:
        tasks = [asyncio.create_task(engine.agenerate(PROMPT, long)) for _ in range(100)]
        before = len(slow.steps)
        while len(slow.steps) < before + 4:
            await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        at = len(slow.steps)
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(slow.steps) <= at + 2  # the tasks themselves wait for nothing
        while not all(request.ended for request in requests):
            await asyncio.sleep(0.001)
        return len(slow.steps) - at

    assert asyncio.run(work()) <= 2
    assert len(requests) == 100


def test_token_calls_wait_for_one_step_beside_running_requests(engine: Engine, slow: Slow) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=1)
    runners = [threading.Thread(target=engine.generate, args=(PROMPT, params)) for _ in range(8)]
    for runner in runners:
        runner.start()
    while len(slow.steps) < 3:
        time.sleep(0.001)
    for _ in range(6):
        before = len(slow.steps)
        engine.release(engine.open_sequence())
        assert len(slow.steps) <= before + 2
    assert any(runner.is_alive() for runner in runners)
    for runner in runners:
        runner.join()


def test_token_calls_do_not_wait_for_the_boards_own_loop(engine: Engine) -> None:
    received = 0
    waits: list[int] = []

    def count(delta: object) -> None:
        nonlocal received
        received += 1
        time.sleep(0.002)

    params = SamplingParams(max_tokens=200, ignore_eos=True)
    runner = threading.Thread(target=engine.generate, args=(PROMPT, params, count))
    runner.start()
    while received < 5:
        time.sleep(0.001)
    for _ in range(5):
        before = received
        engine.adapters()
        waits.append(received - before)
    assert runner.is_alive()
    runner.join()
    assert max(waits) <= 3 and received == 200


def test_a_lone_caller_runs_its_own_steps(engine: Engine, expected: tuple[int, ...]) -> None:
    """No hop to another thread: callbacks come in the caller's, and none is started."""
    before = threading.active_count()
    threads: set[int] = set()
    engine.generate(PROMPT, PARAMS, on_delta=lambda delta: threads.add(threading.get_ident()))
    assert [delta.token_id for delta in engine.stream(PROMPT, PARAMS)] == list(expected)
    assert threads == {threading.get_ident()} and threading.active_count() == before


def test_streams_of_threads_come_delta_by_delta(
    engine: Engine, slow: Slow, expected: tuple[int, ...]
) -> None:
    """A follower receives its first delta steps before its last one, not with it."""
    between: list[int] = []
    found: list[list[int | None]] = []

    def read() -> None:
        deltas = engine.stream(PROMPT, PARAMS)
        first, then = next(deltas), len(slow.steps)
        found.append([first.token_id, *(delta.token_id for delta in deltas)])
        between.append(len(slow.steps) - then)

    readers = [threading.Thread(target=read) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [list(expected)] * 20
    assert statistics.median(between) >= len(expected) / 2


def test_generating_inside_a_callback_is_refused_by_name(
    engine: Engine, expected: tuple[int, ...]
) -> None:
    with pytest.raises(RequestError, match="wait for itself"):
        engine.generate(PROMPT, PARAMS, on_delta=lambda delta: engine.generate(PROMPT))
    result = engine.generate(PROMPT, PARAMS)
    assert isinstance(result, Result) and result.token_ids == expected


def test_a_long_prompt_does_not_hold_streams_up() -> None:
    """The middle gap between tokens rises at most five times; without pace it was 20 to 28."""
    stop = threading.Event()
    times: list[list[float]] = [[] for _ in range(4)]

    def read(index: int) -> None:
        params = SamplingParams(max_tokens=1000, ignore_eos=True, temperature=0.8, seed=index)
        for _ in engine.stream([5, index], params):
            times[index].append(time.perf_counter())
            if stop.is_set():
                return

    with Engine() as engine:
        readers = [threading.Thread(target=read, args=(index,)) for index in range(4)]
        for reader in readers:
            reader.start()
        while min(map(len, times)) < 60:
            time.sleep(0.01)
        began = time.perf_counter()
        engine.generate([5 + i % 900 for i in range(900)], max_tokens=1)
        ended = time.perf_counter()
        stop.set()
        for reader in readers:
            reader.join()
    gaps = [(a, b - a) for each in times for a, b in pairwise(each)]
    meanwhile = statistics.median(gap for at, gap in gaps if began <= at <= ended)
    before = statistics.median(gap for at, gap in gaps if at < began)
    assert meanwhile < 5 * before
