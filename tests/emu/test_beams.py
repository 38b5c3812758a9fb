"""Beam search on emulated boards: transformers' own hypotheses, whatever shares a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.quant.recipe import Recipe
from lora_sdk.step.tree_shape import TreeShape
from tests.adapter_folders import Folder, write_adapter
from tests.beam_cases import COUNT, MODELS, cases, difference, expected, found, searched
from tests.calibrated import write_quantized
from tests.variants import Scale, variant, write_checkpoint

NAME = "llama_narrow"
PROMPTS = [[5, 6, 7], list(range(3, 43)), [9], [11, 12] * 16]
WIDE = BeamSearchParams(beam_width=4, n=4, max_tokens=9)


def test_the_fixture_has_ended_cut_sampled_and_padded_searches() -> None:
    every = [
        pair
        for model in MODELS
        for pair in zip(cases(*model, COUNT), expected(*model), strict=True)
    ]
    sizes = [sum(map(len, found)) for _, found in every]
    assert sum(sizes) >= 500
    for wanted in (
        lambda case, tokens: tokens[-1] in case.ends and len(tokens) < case.params.max_tokens,
        lambda case, tokens: tokens[-1] not in case.ends,
        lambda case, tokens: not case.params.greedy,
        lambda case, tokens: len(case.prompts) == 4 and case.pad == 0,
        lambda case, tokens: case.params.early_stopping == "never",
        lambda case, tokens: case.params.length_penalty < 0,
    ):
        assert sum(wanted(case, t) for case, f in every for one in f for t, _ in one) >= 25


@pytest.mark.parametrize("boards", [pytest.param(1, marks=pytest.mark.slow), 2,
                                    pytest.param(4, marks=pytest.mark.slow)])  # fmt: skip
@pytest.mark.parametrize(("model", "scale"), MODELS)
def test_the_hypotheses_are_those_of_transformers(
    model: str, scale: Scale, boards: int, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    """All boards give the same bits, so quick runs leave out the other counts and most cases."""
    folder = write_checkpoint(variant(model), tmp_path, scale)
    with Engine(folder, boards=boards, devices=devices, max_sequences=32) as engine:
        pairs = list(zip(cases(model, scale, COUNT), expected(model, scale), strict=True))
        for case, theirs in pairs[: 8 if boards == 2 else COUNT]:
            assert not difference(searched(engine, case), theirs, 1e-5), case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant(NAME), tmp_path_factory.mktemp("beams"), "x3")


@pytest.fixture(scope="module")
def engine(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    adapter = tmp_path_factory.mktemp("adapter")
    write_adapter(variant(NAME), Folder("a", rank=8, blocks=0), adapter)
    with Engine(folder, boards=2, max_adapters=1, max_sequences=12) as opened:
        opened.load_adapter("a", adapter, 8.0)
        yield opened


def one(engine: Engine, prompt: list[int], params: SamplingParams) -> Result:
    result = engine.generate(prompt, params)
    assert isinstance(result, Result)
    return result


def test_searches_run_among_other_requests_and_with_adapters(engine: Engine) -> None:
    each = [
        WIDE,
        SamplingParams(max_tokens=12, temperature=0.9, seed=4, n=2),
        BeamSearchParams(beam_width=3, n=2, max_tokens=12, adapter="a"),
        BeamSearchParams(beam_width=2, n=2, max_tokens=6, temperature=1.0, seed=8),
    ]
    pairs = zip(PROMPTS, each, strict=True)
    alone = [one(engine, prompt, params).outputs for prompt, params in pairs]
    together = engine.generate(PROMPTS, each)
    assert isinstance(together, list)
    assert [result.outputs for result in together] == alone
    plain = one(engine, PROMPTS[2], BeamSearchParams(beam_width=3, n=2, max_tokens=12))
    assert plain.outputs != alone[2]
    assert [info.users for info in engine.adapters()] == [0]


def test_a_score_is_the_mean_of_the_log_probabilities_and_the_best_comes_first(
    engine: Engine,
) -> None:
    """Each hypothesis as a prompt of its own, by the log probabilities of requests."""
    result = one(engine, PROMPTS[1], WIDE)
    scores = [output.score or 0.0 for output in result.outputs]
    assert result.score == scores[0] and scores == sorted(scores, reverse=True)
    for output in result.outputs:
        whole = [*PROMPTS[1], *output.token_ids]
        listed = one(engine, whole, SamplingParams(max_tokens=1, prompt_logprobs=0)).prompt_logprobs
        values = [entry.chosen.logprob for entry in (listed or ())[len(PROMPTS[1]) :] if entry]
        assert output.score == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_wider_beams_score_at_least_as_well_as_greedy_decoding(engine: Engine) -> None:
    for prompt in PROMPTS:
        fields = {"max_tokens": 8, "ignore_eos": True}
        greedy = one(engine, prompt, BeamSearchParams(beam_width=1, **fields))
        assert greedy.token_ids == one(engine, prompt, SamplingParams(**fields)).token_ids
        wide = one(engine, prompt, BeamSearchParams(beam_width=8, **fields))
        assert (wide.score or 0.0) >= (greedy.score or 0.0)


def test_a_prompt_is_computed_once_for_all_its_beams(engine: Engine) -> None:
    prompt = [7] * 200
    rows = engine._stepper.rows
    one(engine, prompt, BeamSearchParams(beam_width=4, max_tokens=5, ignore_eos=True))
    assert engine._stepper.rows - rows == len(prompt) + 4 * 4


def test_beams_decode_without_drafts_while_others_speculate(folder: Path, engine: Engine) -> None:
    """Nor do they take rows of the others' trees."""
    options = SpeculationOptions("lookup", None, TreeShape.chain(4))
    fields = SamplingParams(max_tokens=24, ignore_eos=True)
    prompts = [PROMPTS[3], PROMPTS[3]]
    with Engine(folder, speculation=options) as drafting:
        mixed = drafting.generate(prompts, [WIDE, fields])
        assert isinstance(mixed, list)
        assert mixed[0].outputs == one(engine, PROMPTS[3], WIDE).outputs
        assert mixed[1].token_ids == one(engine, PROMPTS[3], fields).token_ids
        alone = one(drafting, PROMPTS[3], fields).speculation
        assert mixed[0].speculation is None
        assert mixed[1].speculation is not None and alone is not None
        assert mixed[1].speculation.mean_rows == alone.mean_rows > 1


@pytest.mark.parametrize(
    "recipe",
    [Recipe("w8a8"), Recipe("w4a8", 32, kv="int8-heads"), Recipe("w4a16", 32, kv="fp16")],
    ids=lambda recipe: recipe.scheme,
)
def test_quantized_models_find_the_same_on_any_boards(recipe: Recipe, tmp_path: Path) -> None:
    write_quantized("llama_linear", tmp_path, recipe)
    results = []
    for boards in (1, 2, 4):
        with Engine(tmp_path / "quantized", boards=boards) as engine:
            results.append([found(one(engine, prompt, WIDE)) for prompt in PROMPTS[:2]])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda e: e.beam_search([5], SamplingParams()), "expected BeamSearchParams"),
        (lambda e: e.beam_search([], WIDE), "no prompt was given"),
        (lambda e: e.beam_search([[5], [6]], [WIDE]), "1 sampling parameters for 2 prompts"),
        (lambda e: e.beam_search([5], BeamSearchParams(beam_width=13)), "beam_width is 13; the bo"),
    ],
)
def test_bad_calls_are_refused(
    engine: Engine, ask: Callable[[Engine], object], message: str
) -> None:
    from lora_host.errors import RequestError

    with pytest.raises(RequestError, match=message):
        ask(engine)
