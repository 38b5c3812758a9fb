"""Final hidden states are the rows that lm_head reads, as the number rules have them, and
embeddings are made of these: the same bytes over boards, cuts into steps and transports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk import Engine, SamplingParams
from lora_sdk.engine.requests import Pool
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.runner import Runner
from lora_sdk.step.step import Row
from tests.drive import open_runner
from tests.oracle import Oracle, load_weights
from tests.quantized import SCHEMES, QuantizedModel
from tests.transports import Transport
from tests.variants import variant, write_checkpoint

TOKENS = [3, 77, 200, 9, 41, 150, 8, 61, 5, 122, 19, 33]
SELECTED = (1, 4, 5, 8, 11)
FAMILIES = (
    "gpt2", "opt", "opt_post_norm", "opt_no_final_norm", "llama_gqa_tied", "granite", "gemma2_gqa",
    "phi_gqa", "falcon_new", "olmo2_gqa", "stablelm_parallel_gqa",
)  # fmt: skip
PROMPT = [int(token) for token in np.arange(5, 140) * 7 % 250]


def final(runner: Runner, selected: tuple[int, ...] = SELECTED) -> NDArray[np.float16]:
    """The final states of these rows of a chain."""
    rows = [
        Row(0, i, token, i, i - 1, want_final=i in selected, want_logits=i == 3)
        for i, token in enumerate(TOKENS)
    ]
    result = runner.step(rows, [KvOp.length(0, 0), KvOp.table(0, 0, runner.plan.scratch_pages)])
    assert result.final is not None and result.rows == tuple(sorted({3, *selected}))
    return result.final[[result.rows.index(row) for row in selected]]


@pytest.mark.parametrize("name", FAMILIES)
def test_final_states_are_lm_heads_inputs(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path)
    checkpoint = Checkpoint.open(folder)
    expected = Oracle(checkpoint.config, load_weights(checkpoint)).final(TOKENS)
    for boards, stages in ((1, 1), (2, 1), (4, 1), (4, 2)):
        with open_runner(folder, boards, stages=stages, final_states=True) as runner:
            found = final(runner)
        assert found.tobytes() == expected.astype(np.float16)[list(SELECTED)].tobytes(), boards


@pytest.mark.parametrize("mode", ["", "s"])
@pytest.mark.parametrize("scheme", ["w8a8", "w8a8_dynamic", "w4a8_order", "w4a8_dynamic_order"])
def test_in_every_format(scheme: str, mode: str, tmp_path: Path) -> None:
    """lm_head's input in FP16, whatever is quantized."""
    folder = write_checkpoint(variant("llama_gqa_bias"), tmp_path)
    model = QuantizedModel(folder, SCHEMES[scheme])
    adapters = AdapterOptions(1, 8, mode) if mode else None
    found = []
    for boards in (1, 2, 4):
        with open_runner(
            folder, boards, model=model, adapters=adapters, final_states=True
        ) as runner:
            found.append(final(runner))
            every = final(runner, tuple(range(len(TOKENS))))
            assert every[list(SELECTED)].tobytes() == found[-1].tobytes()
            assert len({row.tobytes() for row in every}) == len(TOKENS)
    assert len({one.tobytes() for one in found}) == 1


def test_beside_hidden_taps(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("gpt2"), tmp_path)
    with open_runner(folder, 2, final_states=True) as runner:
        alone = final(runner)
    with open_runner(folder, 2, hidden_taps=(0, 2), final_states=True) as runner:
        assert final(runner).tobytes() == alone.tobytes()
        rows = [
            Row(0, i, token, i, i - 1, want_hidden=True, want_final=i == 2)
            for i, token in enumerate(TOKENS)
        ]
        result = runner.step(rows, [KvOp.length(0, 0), KvOp.table(0, 0, runner.plan.scratch_pages)])
        assert result.hidden is not None and result.hidden.shape[:2] == (2, len(TOKENS))
        assert result.final is not None and len(result.final) == 1
    with open_runner(folder, 2) as runner, pytest.raises(RequestError, match="final states"):
        final(runner)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_gqa_tied"), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder, boards=2, embeddings=True, max_sequences=3) as opened:
        yield opened


@pytest.fixture(scope="module")
def states(folder: Path) -> NDArray[np.float64]:
    """By the rules, of PROMPT."""
    checkpoint = Checkpoint.open(folder)
    return Oracle(checkpoint.config, load_weights(checkpoint)).final(PROMPT).astype(np.float64)


def pooled(states: NDArray[np.float64], pooling: str, normalize: bool) -> NDArray[np.float32]:
    """docs/numbers.md, 9.4, word by word."""
    found = []
    for column in states.T:
        total = 0.0
        for value in column:
            total = total + float(value)
        found.append(total / len(column) if pooling == "mean" else float(column[-1]))
    square = 0.0
    for one in found:
        square = square + one * one
    return np.array([one / square**0.5 if normalize else one for one in found], np.float64).astype(
        np.float32
    )


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_embeddings_follow_the_rules(
    engine: Engine, states: NDArray[np.float64], pooling: str, normalize: bool
) -> None:
    found = engine.embed(PROMPT, pooling, normalize)
    assert found.dtype == np.float32
    assert found.tobytes() == pooled(states, pooling, normalize).tobytes()


def test_same_bytes_on_every_transport(folder: Path, transport: Transport) -> None:
    alone = {}
    for boards in (1, 2, 4):
        with Engine(folder, **transport.named(boards), embeddings=True) as opened:
            for pooling in ("last", "mean"):
                found = opened.embed(PROMPT[:70], pooling).tobytes()
                assert alone.setdefault(pooling, found) == found, (boards, pooling)
    assert len(set(alone.values())) == 2


def test_beside_texts_and_each_other(engine: Engine) -> None:
    """More prompts than sequences, with common beginnings that are cached, while texts run."""
    alone = [engine.embed(PROMPT[:count], "mean") for count in (1, 33, 64, 100, 135)]
    before = engine.new_tokens
    prompts = [PROMPT[:count] for count in (1, 33, 64, 100, 135)]
    text = engine.generate(PROMPT[:40], max_tokens=20).outputs[0].token_ids

    async def both() -> tuple[NDArray[np.float32], tuple[int, ...]]:
        found, made = await asyncio.gather(
            engine.aembed(prompts, "mean"), engine.agenerate(PROMPT[:40], max_tokens=20)
        )
        return found, made.outputs[0].token_ids

    found, again = asyncio.run(both())
    assert again == text and engine.new_tokens == before + 40  # an embedding is no new token
    assert found.tobytes() == np.stack(alone).tobytes()
    assert engine.embed([PROMPT[:33]]).shape == (1, found.shape[1])


def test_a_whole_context(engine: Engine) -> None:
    longest = (PROMPT * 10)[: engine.context]
    assert engine.embed(longest, "mean").shape == engine.embed(PROMPT).shape
    with pytest.raises(RequestError, match="1 more than the context"):
        engine.embed([*longest, 5])


def test_a_pool_takes_each_state_once() -> None:
    """A request that begins again meets positions that it knows."""
    states = np.arange(12, dtype=np.float16).reshape(4, 3)
    pool = Pool("mean", 4, False)
    for position in (0, 1, 0, 1, 2, 2, 3):
        pool.add(position, states[position])
    assert pool.vector().tolist() == states.mean(0).tolist()
    assert not pool.wanted(3, 1)
    pool.reset()
    assert pool.wanted(0, 1) == [0]
    last = Pool("last", 4, True)
    assert last.wanted(0, 5) == [3]
    last.add(3, np.zeros(3, np.float16))
    assert last.vector().tolist() == [0, 0, 0]  # nothing to normalize


def test_refusals(engine: Engine, folder: Path) -> None:
    for what, message in (
        ({"prompts": []}, "no prompt"),
        ({"prompts": [[]]}, "empty"),
        ({"prompts": [[1], [999]]}, "prompt 1: token 0"),
        ({"prompts": [1], "pooling": "cls"}, "pooling"),
        ({"prompts": [1], "normalize": 1}, "normalize"),
        ({"prompts": [1], "adapter": "none"}, "none"),
    ):
        with pytest.raises(Exception, match=message):
            engine.embed(**what)  # type: ignore[arg-type]
    with Engine(folder) as plain, pytest.raises(RequestError, match="embeddings=True"):
        plain.embed(PROMPT)
    sampled = replace(SamplingParams(), max_tokens=2)
    assert len(engine.generate(PROMPT[:5], sampled).outputs[0].token_ids) == 2
