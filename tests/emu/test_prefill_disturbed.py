"""Prompts computed by a worker beside other requests, cancelled, or while the worker or a board
fails or the engine closes: the same texts, and nothing left behind."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from lora_host import abi
from lora_host.errors import ModelError, RequestError
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.prefill.boards import BoardsComputer
from lora_sdk.prefill.job import Job, Part
from tests.prefill_rig import LONG, TOKENS, Gate, held, opened, wanted
from tests.recovery_rig import inject
from tests.variants import variant, write_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("m") / "model")


def test_others_decode_while_the_worker_computes(model: Path) -> None:
    with opened(model, 2) as engine, Gate(engine, 1) as gate:
        stream = engine.stream(TOKENS[:1], max_tokens=60, ignore_eos=True)
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(engine.generate(LONG, max_tokens=6, logprobs=2))
        )
        with_gate = iter(stream)
        gate.open.set()
        next(with_gate)  # the worker has computed the first prompt
        gate.open.clear()
        thread.start()
        assert gate.reached.wait(20)
        assert len([next(with_gate) for _ in range(40)]) == 40 and not found
        gate.open.set()
        list(with_gate)
        thread.join()
        assert found[0].outputs == wanted(model)


def test_a_cancelled_prompt_holds_no_page(model: Path) -> None:
    with opened(model, 2) as engine, Gate(engine, 1) as gate:
        thread = threading.Thread(
            target=lambda: cancelled.append(engine._generator.wait([request]))
        )
        cancelled: list[Any] = []
        request = engine._requests.request(LONG, SamplingParams(max_tokens=6))
        engine._generator.submit(request)
        thread.start()
        assert gate.reached.wait(20) and engine.kv_use.held > 0
        request.cancel()
        thread.join()
        assert held(engine) == 0 and engine._cache.free_sequences == 4
        gate.open.set()
        other = engine.generate(LONG, max_tokens=6, logprobs=2)
        assert isinstance(other, Result) and other.outputs == wanted(model)
        assert engine.prefill_use is not None and engine.prefill_use.prompts == 1
        assert gate.handed == [0, 1, 0, 1, 2, 3]  # the worker stopped


def test_pages_are_given_back_only_after_the_write_in_which_a_cancel_falls(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, leave = threading.Event(), threading.Event()
    writes: list[bool] = []
    with opened(model, 2) as engine:
        assert engine._workers is not None
        transfer = engine._workers._transfer
        write = transfer.write

        def held_up(pages: Any, kv: Any, layer: int, still: Callable[[], bool]) -> Any:
            inside.set()
            assert leave.wait(20)
            writes.append(still())
            return write(pages, kv, layer, still)

        monkeypatch.setattr(transfer, "write", held_up)
        request = engine._requests.request(LONG, SamplingParams(max_tokens=6))
        engine._generator.submit(request)
        thread = threading.Thread(target=lambda: engine._generator.wait([request]))
        thread.start()
        assert inside.wait(20)
        request.cancel()
        thread.join(0.2)
        assert thread.is_alive() and engine.kv_use.held >= 7
        leave.set()
        thread.join(20)
        assert not thread.is_alive() and held(engine) == 0
        assert writes == [False]  # the write knew, and no other one began
        monkeypatch.setattr(transfer, "write", write)
        other = engine.generate(LONG, max_tokens=6, logprobs=2)
        assert isinstance(other, Result) and other.outputs == wanted(model)


def test_a_worker_keeps_nothing_of_prompts_that_ended(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of finished and of cancelled ones, neither arrays nor pages."""
    parts: list[weakref.ref[Part]] = []
    give = Job.give

    def noted(job: Job, part: Part) -> None:
        parts.append(weakref.ref(part))
        give(job, part)

    monkeypatch.setattr(Job, "give", noted)
    with opened(model, 1, prefix_cache=False) as engine:
        assert engine._workers is not None
        for _ in range(3):
            requests = [
                engine._requests.request(TOKENS[i : i + 150], SamplingParams(max_tokens=3))
                for i in range(4)
            ]
            for request in requests:
                engine._generator.submit(request)
            before = len(parts)
            thread = threading.Thread(target=lambda some=requests: engine._generator.wait(some))
            thread.start()
            while len(parts) == before:
                time.sleep(0.001)
            for request in requests[1::2]:
                request.cancel()
            thread.join(20)
        computer = engine._workers._worker._computer
        assert isinstance(computer, BoardsComputer) and held(engine) == 0
        end = time.monotonic() + 20  # the worker's present step, of a prompt that was cancelled
        while computer._cache.held_pages or any(part() is not None for part in parts):
            gc.collect()
            assert time.monotonic() < end
            time.sleep(0.01)
        assert len(parts) > 6


def test_a_worker_that_fails_is_done_without(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    want = wanted(model)
    with opened(model, 2) as engine:

        def lose() -> None:
            computer = gate.computer
            assert isinstance(computer, BoardsComputer)
            emulated = computer._opened.cluster.emulated
            assert emulated is not None
            emulated.fault(0, abi.FAULT_FIRMWARE_DEAD)

        with Gate(engine, 1, lose) as gate, caplog.at_level(logging.WARNING):
            gate.open.set()
            for _ in range(2):
                result = engine.generate(LONG, max_tokens=6, logprobs=2, cache_salt=str(_))
                assert isinstance(result, Result) and result.outputs == want
        lines = [one.getMessage() for one in caplog.records if one.name == "lora_sdk.prefill"]
        assert len(lines) == 1 and "boards:1 failed" in lines[0]
        assert engine.prefill_use is not None and engine.prefill_use.prompts == 0
        assert held(engine) == 0 and not engine.recoveries


@pytest.mark.parametrize("fault", [abi.FAULT_FIRMWARE_DEAD, abi.FAULT_BOARD_LOST])
@pytest.mark.parametrize("part", [0, 2])
def test_a_board_that_fails_on_the_way_changes_no_text(model: Path, part: int, fault: int) -> None:
    want = wanted(model)
    with opened(model, 2) as engine:
        with Gate(engine, part, lambda: inject(engine, 1, fault)) as gate:
            gate.open.set()
            result = engine.generate(LONG, max_tokens=6, logprobs=2)
            assert isinstance(result, Result) and result.outputs == want
        assert len(engine.recoveries) == 1 and held(engine) == 0


def test_boards_that_were_recovered_on_the_way_change_no_text(model: Path) -> None:
    """Two parts are on the boards when a step of another request fails."""
    want = wanted(model)
    with opened(model, 2) as engine, Gate(engine, 2) as gate:
        engine.generate(TOKENS[300:350], max_tokens=1)  # so that a recovery moves pages
        stream = iter(engine.stream(TOKENS[:1], max_tokens=300, ignore_eos=True))
        next(stream)
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(engine.generate(LONG, max_tokens=6, logprobs=2))
        )
        thread.start()
        assert gate.reached.wait(20)
        while gate.job.parts:
            next(stream)
        next(stream)
        inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        while not engine.recoveries:
            next(stream)
        gate.open.set()
        list(stream)
        thread.join()
        assert found[0].outputs == want and len(engine.recoveries) == 1


def test_a_value_that_overflows_is_named_as_by_the_boards(tmp_path: Path) -> None:
    """It ends its own request, and the worker goes on."""
    folder = write_checkpoint(variant("gpt2"), tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        tensors[name] = tensor.copy()
        if name.endswith("wte.weight"):
            tensors[name][:, 0] = 40
        elif name.endswith("wpe.weight"):
            tensors[name][12, 0] = 65504
    save_file(tensors, folder / "model.safetensors")
    with opened(folder) as engine:
        with pytest.raises(ModelError, match=r"the prompt: embed wrote NaN or .* position 12\)"):
            engine.generate(LONG, max_tokens=2)
        engine.generate(LONG[:9], max_tokens=2)
        assert engine.prefill_use is not None and engine.prefill_use.prompts == 1
        assert held(engine) == 0


def test_closing_does_not_wait_for_the_worker(model: Path) -> None:
    engine = opened(model)
    with Gate(engine, 0) as gate:
        thread = threading.Thread(target=lambda: refused(engine))
        thread.start()
        assert gate.reached.wait(20)
        threading.Timer(0.1, gate.open.set).start()
        engine.close()
        thread.join()


def refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="closed"):
        engine.generate(LONG, max_tokens=6)
