"""Requests over workers and clusters: the texts of one engine, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lora_cluster import Fleet
from lora_cluster.cli.fleet import fleet_command
from lora_cluster.dispatch.place import Place
from lora_host import abi
from lora_host.errors import AdapterError, LoraError, RequestError
from lora_lab.synth.folder import synthesize
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.engine.kv_source import MigratedKv
from lora_sdk.prefill.job import Job, Part
from lora_sdk.quant.recipe import Recipe
from tests.recovery_rig import Folders, inject, mixed, opened, speculation, write_folders
from tests.unit.test_synth import TINY

EXAMPLES = Path(__file__).parents[2] / "examples"


RECIPES = {"w8a8": Recipe("w8a8", kv="int8"), "w4a8": Recipe("w4a8", group=32, kv="int8-heads")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("fleet"))


def quantized(root: Path, recipe: Recipe) -> Path:
    """A tiny LLaMA with random weights."""
    config = root / "config.json"
    fields = {"model_type": "llama", **TINY["llama"], "max_position_embeddings": 384}
    config.write_text(json.dumps(fields))
    synthesize(config, root / "model", recipe=recipe)
    return root / "model"


@contextmanager
def fleet_of(
    folders: Folders, workers: Sequence[int], clusters: Sequence[int], **options: Any
) -> Iterator[Fleet]:
    """A fleet of engines with so many boards each."""
    with ExitStack() as stack:
        engines = [
            [stack.enter_context(opened(folders, boards, **options)) for boards in each]
            for each in (workers, clusters)
        ]
        yield stack.enter_context(Fleet(*engines))


def said(results: Result | list[Result]) -> list[object]:
    """Everything of each result that does not depend on where it was computed."""
    assert isinstance(results, list)
    return [
        [(one.token_ids, one.logprobs, one.finish_reason, one.score) for one in result.outputs]
        for result in results
    ]


def alone(folders: Folders, requests: Sequence[tuple[list[int], SamplingParams]]) -> list[object]:
    with opened(folders, 1) as engine:
        return said([one for p, params in requests for one in [engine.generate(p, params)]])  # type: ignore[list-item]


def wanted(count: int, seed: int) -> list[tuple[list[int], SamplingParams]]:
    """Mixed requests, with log probabilities, beams, and texts of up to 40 tokens."""
    requests = mixed(seed, count, 40)
    beams = BeamSearchParams(beam_width=3, n=2, max_tokens=6)
    return [(p, beams) if i % 11 == 7 else (p, one) for i, (p, one) in enumerate(requests)]


def run(fleet: Fleet, requests: Sequence[tuple[list[int], SamplingParams]], **more: Any) -> Any:
    return fleet.generate([p for p, _ in requests], [one for _, one in requests], **more)


def held(fleet: Fleet) -> dict[str, tuple[int, int]]:
    """KV pages and requests of each place that has not failed, where there are any. An engine gives
    pages back after its request has ended, in its own thread."""
    end = time.monotonic() + 20
    while True:
        found = {place.name: held_at(place) for place in fleet.places if place.failure is None}
        found = {name: counts for name, counts in found.items() if any(counts)}
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.01)


def held_at(place: Place) -> tuple[int, int]:
    engine = place.engine
    with engine._generator.lock:
        engine._stepper.flush()
        return engine.kv_use.held, len(place.tickets)


def test_a_fleet_has_the_texts_of_one_engine(folders: Folders) -> None:
    requests = wanted(16, 3)
    with fleet_of(folders, [1], [2, 1]) as fleet:
        assert said(run(fleet, requests)) == alone(folders, requests)
        use = fleet.use
        assert use.requests == use.ended == 16 and use.moved >= 6 and not use.rescued
        assert use.prefilled_by_workers >= use.moved
        assert not held(fleet)


def test_without_workers_clusters_compute_prompts(folders: Folders) -> None:
    requests = wanted(6, 4)
    with fleet_of(folders, [], [1, 2]) as fleet:
        assert said(run(fleet, requests)) == alone(folders, requests)
        assert fleet.use.moved == fleet.use.prefilled_by_workers == 0


def test_without_clusters_workers_do_all(folders: Folders) -> None:
    requests = wanted(6, 5)[:5]
    with fleet_of(folders, [1], []) as fleet:
        assert said(run(fleet, requests)) == alone(folders, requests)
        assert fleet.use.by_workers == 5


@pytest.mark.parametrize("kind", ["fp16", "w8a8", "w4a8"])
def test_a_text_moves_again_and_again(folders: Folders, tmp_path: Path, kind: str) -> None:
    """After every few tokens to an engine of another number of boards, with drafts on one. K and V
    in FP16, INT8 and INT8 by head."""
    model = folders.model if kind == "fp16" else quantized(tmp_path, RECIPES[kind])
    options: dict[str, Any] = {"max_sequences": 2}
    params = SamplingParams(max_tokens=60, temperature=0.8, seed=5, logprobs=2, ignore_eos=True)
    prompt = list(range(3, 75))
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(model, boards=boards, speculation=drafts, **options))
            for boards, drafts in ((1, None), (2, speculation(folders, "lookup")), (4, None))
        ]
        expected = said([engines[0].generate(prompt, params)])  # type: ignore[list-item]
        request = engines[0].requests.make(prompt, params)
        ended, moves = threading.Event(), 0
        request.on_end = ended.set
        here = 0
        engines[0].requests.start(request)
        while not ended.is_set():
            emitted = len(request.samples[0].output)
            if emitted < 3 * (moves + 1) or not engines[here].requests.take(request):
                time.sleep(0.0005)
                continue
            here, moves = (here + 1) % 3, moves + 1
            engines[here].requests.start(request)
        assert said([request.result()]) == expected
        assert moves >= 3
        for engine in engines:
            engine._stepper.flush()
            assert not engine.kv_use.held


def test_k_and_v_that_boards_would_compute_otherwise_are_written_again(folders: Folders) -> None:
    """As a fast worker's: those of another prompt here. They come back after a recovery."""
    params = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=1)
    prompt, other = [5, 6, 7] * 20, [9, 8, 7] * 20
    with opened(folders, 1) as first, opened(folders, 2) as second:
        found = []
        for lost in (False, True):
            request = first.requests.make(other, params)
            first.requests.start(request)
            while not first.requests.take(request):
                assert not request.ended
            brought = request.migrated
            assert brought is not None and brought.kv is not None
            request = second.requests.make(prompt, params)
            kv = replace(brought.kv, k=brought.kv.k[:, :, :59], v=brought.kv.v[:, :, :59])
            request.migrated, request.prefill = MigratedKv(kv, None), "fast"
            seen: list[object] = []
            ended = threading.Event()

            def received(delta: object, seen: list[object] = seen, lost: bool = lost) -> None:
                seen.append(delta)
                if lost and len(seen) == 4:
                    inject(second, 1, abi.FAULT_FIRMWARE_DEAD)

            request.on_delta, request.on_end = received, ended.set
            second.requests.start(request)
            assert ended.wait(30)
            found.append(said([request.result()]))
            assert len(second.recoveries) == lost
        alone = second.generate(prompt, params)
        assert isinstance(alone, Result)
        assert found[0] == found[1] != said([alone])


def test_bytes_that_are_damaged_on_their_way_are_computed_again(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the board's own sum of what it received."""
    params = SamplingParams(max_tokens=30, ignore_eos=True, logprobs=1)
    with opened(folders, 1) as first, opened(folders, 2) as second:
        expected = first.generate([5, 6, 7] * 20, params)
        request = first.requests.make([5, 6, 7] * 20, params)
        ended = threading.Event()
        request.on_end = ended.set
        first.requests.start(request)
        while not first.requests.take(request):
            assert not request.ended
        writes = []

        def damaged(board: int, bank: int, offset: int, data: Any) -> None:
            if isinstance(data, np.ndarray):  # K and V, not the table of weight regions
                writes.append(data)
                data = data if len(writes) > 1 else data ^ 1
            write(board, bank, offset, data)

        write = second.cluster.write
        monkeypatch.setattr(second.cluster, "write", damaged)
        second.requests.start(request)
        assert ended.wait(30) and writes
        assert said([request.result()]) == said([expected])  # type: ignore[list-item]


@pytest.mark.slow
def test_a_killed_worker_and_a_lost_cluster_cost_no_text(folders: Folders) -> None:
    requests = wanted(24, 6)
    expected = alone(folders, requests)
    with fleet_of(folders, [1], [1, 2, 1], recovery="off") as fleet:
        results = fails_meanwhile(fleet, requests, kill_after=4, lose_after=9)
        assert said(results) == expected
        assert set(fleet.use.failed) == {"worker 0", "cluster 0"} and fleet.use.rescued >= 2
        assert fleet.use.ended == 24 and not held(fleet)


def fails_meanwhile(
    fleet: Fleet,
    requests: Sequence[tuple[list[int], SamplingParams]],
    kill_after: int,
    lose_after: int,
) -> Any:
    """The results, while the worker's engine is closed after some results, and cluster 0 loses its
    board after some more."""
    events = {kill_after: fleet.places[0].engine.close, lose_after: lambda: lose(fleet)}
    threads = []

    def ended(*_: object) -> None:
        ended.count += 1  # type: ignore[attr-defined]
        if (event := events.get(ended.count)) is not None:  # type: ignore[attr-defined]
            threads.append(threading.Thread(target=event))
            threads[-1].start()

    ended.count = 0  # type: ignore[attr-defined]
    results = run(fleet, requests, on_result=ended)
    for thread in threads:
        thread.join()
    return results


def lose(fleet: Fleet) -> None:
    inject(fleet.places[1].engine, 0, abi.FAULT_BOARD_LOST, until_reset=False)


def test_when_all_have_failed_requests_end_with_the_reason(folders: Folders) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    with fleet_of(folders, [1], [1], recovery="off") as fleet:
        for place in fleet.places:
            inject(place.engine, 0, abi.FAULT_BOARD_LOST, until_reset=False)
        with pytest.raises(LoraError, match="board 0"):
            fleet.generate([5, 6, 7], params)
        with pytest.raises(LoraError, match="board 0"):
            fleet.generate([5, 6, 7], params)


def test_samples_and_beams_go_on_elsewhere(folders: Folders) -> None:
    """A failure meets a request of several sequences once."""
    asked: list[SamplingParams] = [
        SamplingParams(max_tokens=60, temperature=0.8, seed=3, n=3, ignore_eos=True),
        BeamSearchParams(beam_width=3, n=2, max_tokens=40, ignore_eos=True),
    ]
    for params in asked:
        requests = [([5, 6, 7], params), ([8, 9], SamplingParams(max_tokens=9))]
        expected = alone(folders, requests)
        with fleet_of(folders, [], [1, 1], recovery="off") as fleet:
            first = fleet.places[0].engine

            def lose_when_it_runs(first: Engine = first) -> None:
                while first.steps < 5:
                    time.sleep(0.001)
                inject(first, 0, abi.FAULT_BOARD_LOST, until_reset=False)

            thread = threading.Thread(target=lose_when_it_runs)
            thread.start()
            assert said(run(fleet, requests)) == expected
            thread.join()
            assert fleet.use.failed == ("cluster 0",) and fleet.use.rescued == 1


@pytest.mark.parametrize("shape", [([1], []), ([], [1]), ([1], [1])])
def test_closing_ends_what_runs_and_what_waits(
    folders: Folders, shape: tuple[list[int], list[int]]
) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            fleet.generate([[5, 6, 7]] * 12, max_tokens=300, ignore_eos=True)
        except RequestError as error:
            errors.append(error)

    with fleet_of(folders, *shape) as fleet:
        thread = threading.Thread(target=call)
        thread.start()
        while not fleet.use.requests or not any(place.tickets for place in fleet.places):
            time.sleep(0.001)
        fleet.close()
        thread.join(20)
        assert not thread.is_alive() and "closed" in str(errors[0])
        with pytest.raises(RequestError, match="the fleet is closed"):
            fleet.generate([5])


def test_an_error_of_a_callback_is_its_requests_alone(folders: Folders) -> None:
    count = 0

    def third(delta: object) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise LoraError("mine")

    params = SamplingParams(max_tokens=20, ignore_eos=True)
    with fleet_of(folders, [1], [1, 1]) as fleet:
        for _ in range(3):
            count = 0
            with pytest.raises(LoraError, match="mine"):
                fleet.generate([5, 6], params, on_delta=third)
            assert count == 3 and not fleet.use.failed


def test_a_refused_fleet_closes_its_engines(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_ones: list[Engine] = []
    enter = Engine.__enter__
    monkeypatch.setattr(Engine, "__enter__", lambda own: opened_ones.append(own) or enter(own))  # type: ignore[func-returns-value]
    path = tmp_path / "fleet.yaml"
    path.write_text("workers: [{}]\nclusters: [{}]\n")
    with pytest.raises(RequestError, match="eagle3"):
        Fleet.open(path, model=folders.model, speculation=speculation(folders, "eagle3"))
    assert len(opened_ones) == 2 and all(engine.closed for engine in opened_ones)


def test_requests_begin_in_their_order_and_a_wrong_one_ends_alone(folders: Folders) -> None:
    requests = [(p, one) for p, one in wanted(20, 8) if one.n == 1]
    errors: list[int] = []
    with fleet_of(folders, [1], [1]) as fleet:
        made = [fleet.places[0].engine.requests.make(p, one) for p, one in requests]
        fleet.run(made)
        begun = [request.started for request in made]
        assert all(a is not None and b is not None and a <= b for a, b in pairwise(begun))
        results = fleet.generate(
            [[5, 6], [10**6], [7, 8]], max_tokens=3, on_error=lambda index, _: errors.append(index)
        )
        assert isinstance(results, list) and len(results) == 2 and errors == [1]


@pytest.mark.slow
def test_two_hundred_requests_with_cancels_and_failures(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[weakref.ref[Part]] = []  # of K and V that moved
    give = Job.give

    def noted(job: Job, part: Part) -> None:
        parts.append(weakref.ref(part))
        give(job, part)

    monkeypatch.setattr(Job, "give", noted)
    requests = wanted(200, 9)
    expected = alone(folders, requests)
    draws = random.Random(1)
    cancelled = set(draws.sample(range(200), 30))
    with fleet_of(folders, [1], [1, 2, 1], recovery="off") as fleet:
        made = [fleet.places[0].engine.requests.make(p, one) for p, one in requests]
        counts = iter(range(200))

        def ended() -> None:
            count = next(counts)
            if count == 50:
                threading.Thread(target=fleet.places[0].engine.close).start()
            if count == 100:
                lose(fleet)

        def cancel() -> None:
            for index in sorted(cancelled):
                time.sleep(draws.random() / 20)
                made[index].cancel()

        for request in made:
            request.on_end = ended
        stopper = threading.Thread(target=cancel)
        stopper.start()
        fleet.run(made)
        stopper.join()
        found = said([request.result() for request in made])
        for index, (one, whole) in enumerate(zip(found, expected, strict=True)):
            assert one == whole or index in cancelled
        kept = [request for i, request in enumerate(made) if i not in cancelled]
        assert all(s.finish_reason != "cancelled" for request in kept for s in request.samples)
        assert set(fleet.use.failed) == {"worker 0", "cluster 0"} and fleet.use.ended == 200
        assert not held(fleet)
        end = time.monotonic() + 20
        while any(part() is not None for part in parts):
            gc.collect()
            assert time.monotonic() < end
            time.sleep(0.01)
        assert len(parts) > 5  # moved before the worker closed: fewer on a busy machine


def test_deltas_arrive_one_by_one_and_closing_cancels(folders: Folders) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    with fleet_of(folders, [1], [1]) as fleet:
        want = fleet.generate([5, 6, 7], params)
        assert isinstance(want, Result)
        deltas = list(fleet.stream([5, 6, 7], params))
        assert [d.token_id for d in deltas] == list(want.outputs[0].token_ids)
        assert deltas[-1].finish_reason == "length"
        stream = fleet.stream([5, 6, 7], max_tokens=300, ignore_eos=True)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert fleet.use.ended == 3 and not held(fleet)
        with pytest.raises(RequestError, match="2 prompts"):
            next(fleet.stream([[5], [6]], params))  # type: ignore[arg-type]


def test_asyncio_programs_run_requests_at_once(folders: Folders) -> None:
    params = SamplingParams(max_tokens=12, ignore_eos=True)

    async def run(fleet: Fleet) -> None:
        want = said(fleet.generate([[5, 6], [7, 8, 9]], params))
        assert said(await fleet.agenerate([[5, 6], [7, 8, 9]], params)) == want
        one = await fleet.agenerate([5, 6], params)
        assert isinstance(one, Result) and said([one]) == want[:1]
        deltas = [delta async for delta in fleet.astream([5, 6], params)]
        assert [d.token_id for d in deltas] == list(one.outputs[0].token_ids)
        with pytest.raises(RequestError, match="prompt 1"):
            await fleet.agenerate([[5], [10**6]], params)
        task = asyncio.create_task(fleet.agenerate([5], max_tokens=300, ignore_eos=True))  # type: ignore[arg-type]
        while not any(place.tickets for place in fleet.places):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with fleet_of(folders, [1], [1, 2]) as fleet:
        asyncio.run(run(fleet))
        assert not held(fleet)


def test_an_adapter_leaves_all_engines_or_none(folders: Folders) -> None:
    params = SamplingParams(max_tokens=300, adapter="a", ignore_eos=True)

    def loaded() -> list[int]:
        return [len(place.engine.adapters()) for place in fleet.places]

    with fleet_of(folders, [1], [2]) as fleet:
        stream = fleet.stream([5, 6, 7], params)
        next(stream)
        with pytest.raises(AdapterError, match="used by 1 requests"):
            fleet.unload_adapter("a")
        assert loaded() == [2, 2]
        stream.close()  # type: ignore[attr-defined]
        fleet.unload_adapter("a")
        assert loaded() == [1, 1]
        for call in (lambda: fleet.unload_adapter("a"), lambda: fleet.generate([5], params)):
            with pytest.raises(AdapterError, match="not loaded"):
                call()
        second = fleet.places[1].engine
        sequence = second.open_sequence(adapter="b")
        with pytest.raises(AdapterError, match="used by 1 sequences"):
            fleet.unload_adapter("b")
        second.release(sequence)
        assert loaded() == [1, 1]


def test_engines_of_a_fleet_are_alike(folders: Folders) -> None:
    with pytest.raises(RequestError, match="no engines"):
        Fleet([], [])
    with Engine(folders.model) as one, Engine(folders.model, context=64) as other:
        with pytest.raises(RequestError, match=r"contexts of .* and 64"):
            Fleet([one], [other])
        with pytest.raises(RequestError, match="cluster_room is 0 for 1 clusters"):
            Fleet([], [one], cluster_room=0)
    with Engine() as demo, Engine(folders.model) as one, pytest.raises(RequestError, match="model"):
        Fleet([demo], [one])
    with (
        Engine(folders.model, speculation=speculation(folders, "eagle3")) as one,
        pytest.raises(RequestError, match="eagle3"),
    ):
        Fleet([], [one])


def test_the_command_prints_results_and_a_table(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        fleet_command,
        [str(EXAMPLES / "fleet_demo.yaml"), str(EXAMPLES / "prompts.jsonl"), "-n", "4"],
    )
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6 and "worker 0" in done.stderr
    for content, message in (
        ("clusters: [{boards: 3}]", "clusters.0: 3 boards"),
        ("workers: [{prefill: gpu}]", "prefill"),
        ("workers: [{prefill: 'boards:2', prefill_mode: fast}]", "in the fast mode"),
        ("workers: [{prefill_mode: slow}]", "prefill_mode"),
        ("workers: [{gpus: 1}]", "unknown field 'gpus'"),
        ("clusters: [{devices: ['emu:u280'], boards: 2}]", "boards is 2, devices name 1"),
        ("clusters: [{devices: ['emu:u280'], count: 2}]", "leave out count"),
        ("load: {prompt: 1, response: 1}", "no workers and no clusters"),
        ("clusters: [{overlay: lora_g_u280}]", "lora_g_u280"),
        ("clusters: [{overlay: ./none}]", "none"),
        ("model: nowhere\nclusters: [{boards: 1}]", "nowhere"),
    ):
        path = tmp_path / "fleet.yaml"
        path.write_text(content)
        refused = CliRunner().invoke(fleet_command, [str(path), str(EXAMPLES / "prompts.jsonl")])
        assert refused.exception is not None and message in str(refused.exception), content
