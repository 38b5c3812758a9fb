"""Prompts computed by a worker of other boards: the same texts and bytes as without it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_lab.synth.folder import synthesize
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.adapters.weights import content_digest
from lora_sdk.kv.key_columns import board_columns
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.opening.worker_name import WorkerName, parse_worker
from lora_sdk.prefill.boards import BoardsComputer, step_ends, worker_options
from lora_sdk.prefill.job import Job, JobAdapter, Part, joined_parts
from lora_sdk.quant.recipe import Recipe
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.commands import lora_run
from tests.draft_folders import write_head
from tests.handover_times import slowed
from tests.oracle.integer import AdaptedQuantized
from tests.prefill_rig import LONG, TOKENS, held, opened, wanted
from tests.quantized import oracle_of
from tests.unit.test_synth import TINY
from tests.variants import variant, write_checkpoint

PROMPTS = [TOKENS[:1], TOKENS[1:32], TOKENS[2:36], TOKENS[3:68], TOKENS[5:155]]
FP16 = ("llama_narrow", "gpt2", "opt")
RECIPES = {"w8a8": Recipe("w8a8", kv="int8"), "w4a8": Recipe("w4a8", group=32, kv="int8-heads")}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def write(name: str) -> Path:
        target = tmp_path_factory.mktemp(name) / "model"
        if name not in RECIPES:
            return write_checkpoint(variant(name), target)
        config = target.parent / "config.json"
        fields = {"model_type": "llama", **TINY["llama"], "max_position_embeddings": 384}
        config.write_text(json.dumps(fields))
        synthesize(config, target, recipe=RECIPES[name])
        return target

    return write


@pytest.fixture(scope="module")
def model(folder_of: Callable[[str], Path]) -> Path:
    return folder_of("llama_narrow")


def outputs(engine: Engine, **fields: Any) -> list[Any]:
    """Greedy with log probabilities, greedy without, sampled twice, ended by the first token."""
    found = []
    for given in (
        {"logprobs": 3},
        {},
        {"temperature": 0.9, "seed": 5, "n": 2, "repetition_penalty": 1.2},
        {"max_tokens": 1},
    ):
        params = SamplingParams(**{"max_tokens": 6, "ignore_eos": True, **fields, **given})
        results = engine.generate(PROMPTS, params)
        assert isinstance(results, list)
        found.append([result.outputs for result in results])
    return found


@pytest.mark.parametrize(
    ("name", "boards", "worker"),
    [
        *(pytest.param(name, 2, "boards:1", marks=pytest.mark.slow) for name in FP16),
        *((name, 2, "boards:1") for name in RECIPES),
        ("llama_narrow", 1, "cpu"),
        pytest.param("llama_narrow", 8, "boards:4", marks=pytest.mark.slow),
        ("w4a8", 4, "boards:emu:u280,emu:u280"),
    ],
)
def test_outputs_are_those_of_the_boards(
    name: str, boards: int, worker: str, folder_of: Callable[[str], Path]
) -> None:
    folder = folder_of(name)
    with opened(folder, boards, None, prefix_cache=False) as engine:
        want = outputs(engine)
        assert engine.prefill_use is None
    with opened(folder, boards, worker, prefix_cache=False) as engine:
        assert outputs(engine) == want
        use = engine.prefill_use
        assert use is not None and use.worker == worker
        assert (use.prompts, use.tokens) == (20, 4 * sum(map(len, PROMPTS)))
        assert held(engine) == 0


@pytest.mark.slow
def test_900_tokens_have_the_boards_bytes_of_k_v_and_logits() -> None:
    options = EngineOptions(threads=1)
    computer = BoardsComputer(worker_options(options, WorkerName("boards:2", 2)))
    job = Job(TOKENS, None, lambda: True)
    parts: list[Part] = []
    computer.compute(job, parts.append)
    computer.close()
    assert [part.first_position % 32 for part in parts] == [0] * len(parts) and len(parts) > 10
    with Engine(boards=1, threads=1) as engine:
        sequence = engine.open_sequence()
        logits = engine.prefill(sequence, TOKENS)
        kv = engine.export_kv(sequence)
    assert np.concatenate([part.kv.k for part in parts], axis=2).tobytes() == kv.k.tobytes()
    assert np.concatenate([part.kv.v for part in parts], axis=2).tobytes() == kv.v.tobytes()
    assert job.logits is not None and job.logits.tobytes() == logits.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama"])
@pytest.mark.parametrize("scheme", RECIPES)
def test_900_tokens_on_one_and_eight_boards_are_the_oracles(
    scheme: str, kind: str, tmp_path: Path
) -> None:
    """The worker `cpu`, eight boards and the independent implementation; an adapter, too."""
    folder = quantized(kind, scheme, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    which = replace(variant("gpt2"), config=config)
    path = write_adapter(which, Folder("a", rank=8), tmp_path / "a")
    with Engine(folder, boards=8, max_adapters=1, threads=1, max_sequences=1) as engine:
        engine.load_adapter("a", path)
        weights = engine._adapters.weights("a")
        adapter = JobAdapter(content_digest(weights), weights)
        computer = BoardsComputer(worker_options(engine._options, parse_worker("cpu")))
        for name, given in ((None, None), ("a", adapter)):
            job, parts = Job(TOKENS, given, lambda: True), list[Part]()
            computer.compute(job, parts.append)
            sequence = engine.open_sequence(name)
            logits = engine.prefill(sequence, TOKENS)
            kv = engine.export_kv(sequence).with_columns(board_columns(engine.config))
            engine.release(sequence)
            found = joined_parts(parts)
            assert found.k.tobytes() == kv.k.tobytes() and found.v.tobytes() == kv.v.tobytes()
            assert job.logits is not None and job.logits.tobytes() == logits.tobytes()
            oracle = oracle_of(engine._loaded.checkpoint)
            if name is not None:
                oracle = AdaptedQuantized(oracle, read_factors(which, path))
            want = oracle.logits(TOKENS)[-1]
            assert want.tobytes() == logits.tobytes()
        computer.close()


def quantized(kind: str, scheme: str, folder: Path) -> Path:
    """A small model with eight heads."""
    fields = {"n_positions": 1024, "n_head": 8, "n_embd": 128}
    if kind != "gpt2":
        fields = {"max_position_embeddings": 1024, "num_attention_heads": 8, "hidden_size": 128}
    config = folder / "config.json"
    config.write_text(json.dumps({"model_type": kind, **TINY[kind], **fields}))
    synthesize(config, folder / "model", recipe=RECIPES[scheme])
    return folder / "model"


@pytest.mark.slow
def test_transfer_hides_under_the_computation_of_later_rows(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    wide = {"hidden_size": 256, "num_hidden_layers": 6, "max_position_embeddings": 1024}
    config.write_text(json.dumps({"model_type": "llama", **TINY["llama"], **wide}))
    synthesize(config, tmp_path / "model")
    with opened(tmp_path / "model", prefix_cache=False) as engine:
        hidden, shown = slowed(engine, TOKENS, 1.3)
    assert len(hidden.writes) == 15 and hidden.hidden > len(hidden.writes) / 2
    whole = sum(end - begin for begin, end in shown.writes)
    assert shown.hidden == 0 and shown.exposed > 0.9 * whole
    assert hidden.exposed_parts <= 1.3


@pytest.mark.parametrize("limit", [1, 7, 32, 33, 64, 128])
def test_the_last_steps_of_a_prompt_are_about_equal(limit: int) -> None:
    for tokens in (1, 31, 64, 65, 127, 128, 200, 900):
        ends = step_ends(tokens, limit)
        rows = [end - begin for begin, end in pairwise([0, *ends])]
        assert ends[-1] == tokens and max(rows) <= limit and min(rows) > 0
        assert len(rows) == -(-tokens // limit)
        if limit >= 64 and len(rows) > 1:
            assert rows[-1] >= limit // 4 and ends[-2] % 32 == 0


def test_a_part_is_written_while_a_step_runs_and_the_next_part_computes(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step ends only after a write that began in it, and no part is given before the one before
    it is on the boards."""
    want = wanted(model)
    events: list[str] = []
    stepping, written = threading.Event(), threading.Event()
    with opened(model, 2, prefix_cache=False) as engine:
        assert engine._workers is not None
        stream = iter(engine.stream(TOKENS[:1], max_tokens=200, ignore_eos=True))
        next(stream)
        computer, transfer = engine._workers._worker._computer, engine._workers._transfer
        compute, write, step = computer.compute, transfer.write, engine._stepper._runner.step

        def computing(job: Job, give: Callable[[Part], None]) -> None:
            def one_by_one(part: Part) -> None:
                give(part)
                assert written.wait(20)
                written.clear()
                events.append("computes")

            compute(job, one_by_one)

        def writing(*given: Any) -> Any:
            assert stepping.wait(20)
            found = write(*given)
            events.append("written")
            written.set()
            return found

        def long_step(*given: Any) -> Any:
            count = events.count("written")
            stepping.set()
            if started.is_set() and count < 4:
                end = time.monotonic() + 20
                while events.count("written") == count and time.monotonic() < end:
                    time.sleep(0.001)
                assert events.count("written") > count
            stepping.clear()
            return step(*given)

        started = threading.Event()
        monkeypatch.setattr(computer, "compute", computing)
        monkeypatch.setattr(transfer, "write", writing)
        monkeypatch.setattr(engine._stepper._runner, "step", long_step)
        found: list[Any] = []
        thread = threading.Thread(
            target=lambda: found.append(engine.generate(LONG, max_tokens=6, logprobs=2))
        )
        thread.start()
        while not engine.kv_use.held > 7:  # the prompt's pages
            time.sleep(0.001)
        started.set()
        for _ in stream:
            pass
        thread.join()
        assert events == ["written", "computes"] * 4
        assert found[0].outputs == want


def test_adapters_beams_and_drafts(model: Path, tmp_path: Path) -> None:
    """Two adapters, of which the worker holds one at a time."""
    which = variant("llama_narrow")
    folders = [write_adapter(which, Folder(n, rank=8), tmp_path / n) for n in "ab"]
    drafts = SpeculationOptions("lookup")
    found = []
    for worker in (None, "boards:2"):
        with opened(
            model, 2, worker, max_adapters=2, max_adapter_rank=8, speculation=drafts
        ) as engine:
            for name, folder in zip("ab", folders, strict=True):
                engine.load_adapter(name, folder)
            params = [
                SamplingParams(max_tokens=6, adapter=name, logprobs=2, ignore_eos=True)
                for name in ("a", None, "b", "a")
            ]
            results = engine.generate([LONG[i : i + 70] for i in range(4)], params)
            assert isinstance(results, list)
            beams = engine.beam_search(
                LONG[:50], BeamSearchParams(beam_width=3, n=2, max_tokens=5, adapter="b")
            )
            assert isinstance(beams, Result)
            engine.unload_adapter("a")
            engine.load_adapter("a", folders[1])  # other weights under the same name
            reloaded = engine.generate(LONG[9:79], params[0])
            assert isinstance(reloaded, Result)
            each = [*results, beams, reloaded]
            found.append([result.outputs for result in each])
            assert held(engine) == 0
            if worker is not None:
                assert engine.prefill_use is not None and engine.prefill_use.prompts == 6
    assert found[0] == found[1]


def test_a_known_prefix_is_not_computed_again(model: Path) -> None:
    """What the worker computed serves later requests, whose rest the boards compute."""
    with opened(model) as engine:
        first = engine.generate(LONG, max_tokens=3)
        again = engine.generate(LONG, max_tokens=3)
        assert isinstance(first, Result) and isinstance(again, Result)
        assert (first.cached_tokens, again.cached_tokens) == (0, 199)
        assert engine.prefill_use is not None and engine.prefill_use.prompts == 1
        assert first.outputs == again.outputs
        other = engine.generate([*LONG[:60], *LONG[5:80]], max_tokens=3)  # less than half
        assert isinstance(other, Result) and other.cached_tokens == 0
        assert engine.prefill_use.prompts == 2
        engine.generate([TOKENS[300:420]] * 2, max_tokens=1)  # the second one waits
        assert engine.prefill_use.prompts == 3
        scored = engine.generate(LONG[3:], max_tokens=1, prompt_logprobs=1)
        assert isinstance(scored, Result) and scored.prompt_logprobs is not None
        assert len(scored.prompt_logprobs) == 197 and engine.prefill_use.prompts == 3


@contextmanager
def names(message: str) -> Iterator[None]:
    with pytest.raises(RequestError, match=message):
        yield


def test_workers_that_cannot_be_are_refused(model: Path, tmp_path: Path) -> None:
    for worker in ("gpu", "boards", "boards:", "boards:3", "boards:0", "boards:emu:u280,", "cpu:1"):
        with names("prefill is|URI|expected"):
            EngineOptions(model, prefill=worker)
    head = write_head(variant("llama_narrow"), tmp_path / "head", 120)
    with names("eagle3 draft needs hidden states"):
        opened(model, speculation=SpeculationOptions("eagle3", head))


@pytest.mark.slow
def test_the_command_line_prints_the_same_text() -> None:
    arguments = ("-p", "def add(a, b):\n", "-n", "12", "--threads", "1")
    plain = lora_run(*arguments)
    found = lora_run(*arguments, "--prefill", "boards:1", "--stats")
    assert found.stdout == plain.stdout and found.returncode == 0
    for line in (b"computed by boards:1", b"not modelled: what boards:1"):
        assert line in found.stderr
