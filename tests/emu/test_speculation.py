"""Speculation is lossless: any proposer, tree and number of boards gives plain decoding's tokens,
and what ends a text ends it inside an accepted block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host.errors import ModelError, RequestError
from lora_sdk import Engine, Result, SamplingParams, demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.draft_folders import write_draft_model, write_head
from tests.variants import variant, write_checkpoint

WHICH = variant("llama_narrow")
PROMPT = [(7 * i + 11) % 287 + 3 for i in range(45)]
TREES = (
    TreeShape.chain(4),
    TreeShape(),
    TreeShape.by_width((3, 2)),
    TreeShape.chain(2),
    TreeShape.by_width((2, 2, 1)),
)
SAMPLED = SamplingParams(
    max_tokens=40, temperature=0.9, top_k=50, top_p=0.95, min_p=0.01, seed=11,
    repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1,
    logit_bias={17: 1.5, 5: -2.0}, logprobs=2, ignore_eos=True,
)  # fmt: skip
REQUESTS = (
    SamplingParams(max_tokens=40, ignore_eos=True),
    *(
        SamplingParams(max_tokens=40, temperature=t, seed=3, ignore_eos=True)
        for t in (0.5, 1.0, 1.5)
    ),
    SAMPLED,
)


def tree_of(context: int) -> TreeShape:
    """Another tree at every context."""
    return TREES[context % len(TREES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(WHICH, tmp_path_factory.mktemp("speculation") / "model")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Engine]:
    with Engine(folder, max_sequences=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def echo(folder: Path, devices: tuple[str, ...]) -> Iterator[Engine]:
    """The model drafts for itself: greedy blocks are accepted whole."""
    request = SpeculationOptions("draft", folder, TreeShape.chain(6))
    with Engine(folder, devices=devices[:1], max_sequences=4, speculation=request) as engine:
        yield engine


def drafts(folder: Path, where: Path) -> dict[str, Path | None]:
    return {
        "draft": write_draft_model(WHICH, where / "draft"),
        "longspec": folder,  # the model itself, through a window
        "eagle3": write_head(
            WHICH, where / "head", 120, eagle_aux_hidden_state_layer_ids=[0, 1, 2]
        ),
        "lookup": None,
    }


def alone(engine: Engine, prompt: str | list[int], params: SamplingParams) -> Result:
    result = engine.generate(prompt, params)
    assert isinstance(result, Result)
    return result


@pytest.mark.parametrize("boards", [1, 2, 4])
@pytest.mark.parametrize("proposer", ["draft", "longspec", "eagle3", "lookup"])
def test_tokens_are_those_of_plain_decoding(
    proposer: str,
    boards: int,
    folder: Path,
    plain: Engine,
    tmp_path: Path,
    devices: tuple[str, ...],
) -> None:
    draft = drafts(folder, tmp_path)[proposer]
    request = SpeculationOptions(proposer, draft, tree_of, window=24)
    prompt = PROMPT * 2  # look-up finds something
    with Engine(folder, boards, devices[:boards], speculation=request) as engine:
        for params in REQUESTS:
            found, expected = alone(engine, prompt, params), alone(plain, prompt, params)
            assert found.outputs == expected.outputs, params
        assert engine.speculation is not None
        lengths = engine.speculation.lengths
        assert max(lengths) > (2 if proposer == "lookup" else 4)  # random text hardly repeats


@pytest.mark.parametrize("proposer", ["draft", "longspec", "eagle3", "lookup"])
def test_the_demo_model_with_its_drafts(proposer: str) -> None:
    folders = {"draft": "demo_draft", "longspec": "demo_draft", "eagle3": "demo_eagle3"}
    name = folders.get(proposer)
    draft = demo_model_path().parent / name if name else None
    prompts = ["import os\nimport sys\n\ndef main(", "class Heap:\n    def push(self, item):\n"]
    each = [replace(params, max_tokens=32, ignore_eos=False) for params in REQUESTS[:4]]
    with Engine() as engine:
        expected = [alone(engine, prompt, params) for params in each for prompt in prompts]
    with Engine(speculation=SpeculationOptions(proposer, draft, tree_of)) as engine:
        found = [alone(engine, prompt, params) for params in each for prompt in prompts]
        assert engine.speculation is not None
        least = {"draft": 1.3, "longspec": 1.3, "eagle3": 1.15, "lookup": 1.05}[proposer]
        assert engine.speculation.mean_emitted > least
    assert [one.outputs for one in found] == [one.outputs for one in expected]


def test_a_draft_that_is_right_is_accepted_whole(echo: Engine, plain: Engine) -> None:
    before = echo.speculation.verifications if echo.speculation else 0
    params = SamplingParams(max_tokens=31, ignore_eos=True)
    assert alone(echo, PROMPT, params).token_ids == alone(plain, PROMPT, params).token_ids
    assert echo.speculation is not None
    assert echo.speculation.verifications - before == 5  # one token of the prompt, five of six


@pytest.mark.parametrize("stop", range(3, 12))
def test_a_stop_string_inside_a_block(stop: int, echo: Engine, plain: Engine) -> None:
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    tokens = alone(plain, PROMPT, params).token_ids
    text = plain.tokenizer.decode(tokens[stop : stop + 2]).strip("\ufffd")
    assert text
    for include in (False, True):
        one = replace(params, stop=(text,), include_stop_str_in_output=include)
        found, expected = alone(echo, PROMPT, one), alone(plain, PROMPT, one)
        assert found.outputs == expected.outputs and found.finish_reason == "stop"


@pytest.mark.parametrize("count", range(1, 14))
def test_max_tokens_and_stop_tokens_inside_a_block(count: int, echo: Engine, plain: Engine) -> None:
    whole = alone(plain, PROMPT, SamplingParams(max_tokens=20, ignore_eos=True)).token_ids
    short = alone(echo, PROMPT, SamplingParams(max_tokens=count, ignore_eos=True))
    assert short.token_ids == whole[:count] and short.finish_reason == "length"
    stopping = SamplingParams(max_tokens=20, ignore_eos=True, stop_token_ids=[whole[count]])
    found = alone(echo, PROMPT, stopping)
    assert found.outputs == alone(plain, PROMPT, stopping).outputs
    assert found.finish_reason == "stop"


@pytest.mark.parametrize("room", range(1, 9))
def test_the_contexts_end_inside_a_block(room: int, folder: Path) -> None:
    params = SamplingParams(max_tokens=None, ignore_eos=True)
    request = SpeculationOptions("draft", folder, TreeShape.chain(6))
    with Engine(folder, context=len(PROMPT) + room) as engine:
        expected = alone(engine, PROMPT, params)
    with Engine(folder, context=len(PROMPT) + room, speculation=request) as engine:
        found = alone(engine, PROMPT, params)
    assert found.outputs == expected.outputs
    assert len(found.token_ids) == room + 1 and found.finish_reason == "length"


def test_several_prompts_and_samples_share_steps(echo: Engine, plain: Engine) -> None:
    prompts = [PROMPT[i : i + 9] for i in range(0, 36, 6)]
    each = [
        SamplingParams(max_tokens=12 + i, temperature=0.4 * (i % 3), seed=i, n=1 + i % 3)
        for i in range(len(prompts))
    ]
    found, expected = echo.generate(prompts, each), plain.generate(prompts, each)
    assert isinstance(found, list) and isinstance(expected, list)
    assert [one.outputs for one in found] == [one.outputs for one in expected]


def test_streamed_pieces_are_the_same_one_a_token(echo: Engine, plain: Engine) -> None:
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    deltas = list(plain.stream(PROMPT, params))
    assert list(echo.stream(PROMPT, params)) == deltas
    received: list[int | None] = []

    def third(delta: object) -> bool:
        received.append(getattr(delta, "token_id", None))
        return len(received) == 3

    echo.generate(PROMPT, params, on_delta=third)
    assert received[:3] == [delta.token_id for delta in deltas[:3]]
    assert received[3:] in ([], [None])  # the end, and no token of the block behind it


def test_a_result_tells_what_was_drafted_and_accepted(echo: Engine) -> None:
    result = alone(echo, PROMPT, SamplingParams(max_tokens=16, ignore_eos=True))
    counts = result.as_dict()["speculation"]
    assert counts["emitted"] == 15 and counts["verifications"] == 3
    assert counts["drafted"] == counts["accepted"] == [3, 3, 2, 2, 2]
    assert counts["lengths"] == {"3": 1, "6": 2}
    assert counts["chosen_lengths"] == {"6": 3}


def test_a_draft_of_another_vocabulary_is_refused(folder: Path, tmp_path: Path) -> None:
    other = write_checkpoint(variant("llama"), tmp_path / "other")
    for proposer in ("draft", "longspec"):
        with pytest.raises(ModelError, match="vocabulary of 521 tokens, the model has 290"):
            Engine(folder, speculation=SpeculationOptions(proposer, other))


@pytest.mark.parametrize(
    ("proposer", "draft"), [("drafts", None), ("draft", None), ("lookup", "somewhere")]
)
def test_wishes_that_mean_nothing_are_refused(proposer: str, draft: str | None) -> None:
    with pytest.raises(RequestError, match="expected"):
        SpeculationOptions(proposer, draft)
