"""Engines of models with recurrences or latent attention: texts of requests that share prefixes,
are preempted, forked, drafted for, moved to the host or recovered are those of plain runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.model.config import load_config
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.few_pages import few_pages
from tests.recovery_rig import inject

NAMES = ("lfm2", "qwen3_5", "qwen3_next_mixed", "granitemoehybrid", "falcon_h1_plain",
         "nemotron_h", "deepseek_v2", "glm4_moe_lite_mixed")  # fmt: skip
STEM = [(i * i * 7 + 3 * i) % 200 for i in range(75)]
PROMPTS = [STEM, [*STEM[:70], 1, 2, 3], [*STEM, 9, 9], STEM[:33], [*STEM[:64], *STEM[:40]]]
GREEDY = SamplingParams(max_tokens=40, ignore_eos=True)
EXACT = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=5)
SAMPLED = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=3, temperature=0.9, seed=3, n=2)
REQUESTS = (GREEDY, EXACT, SAMPLED)
Texts = list[tuple[object, ...]]


def texts(engine: Engine, params: SamplingParams) -> Texts:
    """Of all prompts at once. Log probabilities show every bit of a state that reaches them."""
    found = engine.generate(PROMPTS, params)
    assert isinstance(found, list)
    return [tuple(result.outputs) for result in found]


@pytest.fixture(scope="module")
def plain(folder_of: Callable[[str], Path]) -> Callable[[str], list[Texts]]:
    """Of one request after another, on one board, without a prefix cache."""

    @cache
    def run(name: str) -> list[Texts]:
        with Engine(folder_of(name), max_sequences=2, prefix_cache=False, threads=1) as engine:
            every = []
            for params in REQUESTS:
                alone = [engine.generate(prompt, params) for prompt in PROMPTS]
                every.append([tuple(one.outputs) for one in alone if isinstance(one, Result)])
            return every

    return run


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_shared_prefixes_and_batches(
    name: str, boards: int, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    with Engine(folder_of(name), boards=boards, max_sequences=4, threads=1) as engine:
        for _ in range(2):  # the second time with what the first has left
            assert [texts(engine, params) for params in REQUESTS] == plain(name)
        assert engine.kv_use.cached_tokens > 300


@pytest.mark.parametrize("name", NAMES)
def test_preemption(
    name: str, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    with Engine(folder_of(name), max_sequences=4, threads=1) as engine:
        few_pages(engine, 9)
        assert texts(engine, GREEDY) == plain(name)[0]
        assert engine.kv_use.preempted


@pytest.mark.parametrize("name", NAMES)
def test_trees_are_lossless(
    name: str, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    """Drafts of the model itself, which are accepted, and of another, which are not."""
    tree = TreeShape.by_width((2, 2, 1))
    for options in (
        SpeculationOptions("draft", folder_of(name), TreeShape.chain(6)),
        SpeculationOptions("lookup", None, tree),
    ):
        with Engine(folder_of(name), max_sequences=4, speculation=options, threads=1) as engine:
            assert [texts(engine, params) for params in REQUESTS] == plain(name)
            assert engine.speculation is not None and max(engine.speculation.lengths) > 1


@pytest.mark.parametrize("name", NAMES)
def test_pages_on_the_host(
    name: str, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    with Engine(folder_of(name), max_sequences=4, kv_offload=0.05, threads=1) as engine:
        few_pages(engine, 9)
        for _ in range(2):
            assert texts(engine, GREEDY) == plain(name)[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_board_that_is_lost_and_recovered(
    name: str, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    with Engine(folder_of(name), boards=2, max_sequences=4, threads=1) as engine:
        seen: list[object] = []

        def fail(delta: object) -> None:
            seen.append(delta)
            if len(seen) in (1, 11, 29):
                inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)

        found = engine.generate(PROMPTS[0], GREEDY, on_delta=fail)
        assert isinstance(found, Result) and len(engine.recoveries) == 3
        assert tuple(found.outputs) == plain(name)[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_prompts_that_other_boards_compute(
    name: str, folder_of: Callable[[str], Path], plain: Callable[[str], list[Texts]]
) -> None:
    with Engine(folder_of(name), max_sequences=4, prefill="boards:2", threads=1) as engine:
        assert texts(engine, GREEDY) == plain(name)[0]


def test_what_keeps_latents_is_refused(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    socket, what = (
        f"vllm:{tmp_path}/socket",
        "keeps latents, where boards keep K and V .*deepseek_v2",
    )
    with pytest.raises(RequestError, match=what):
        Engine(folder_of("deepseek_v2_lite"), prefill=socket, prefill_mode="fast", threads=1)
    dense = replace(load_config(folder_of("deepseek_v2_lite")), experts=None)
    options = EngineOptions(folder_of("deepseek_v2_lite"), kernels="rtl")
    with pytest.raises(RequestError, match="the hardware source has no latent attention"):
        options.held(dense)


def test_what_has_no_state_is_refused(folder_of: Callable[[str], Path]) -> None:
    with Engine(folder_of("lfm2"), threads=1) as engine:
        sequence = engine.open_sequence()
        with pytest.raises(RequestError, match="lfm2: K and V cannot be exported"):
            engine.export_kv(sequence)
    with pytest.raises(RequestError, match="the hardware source has no layers without attention"):
        Engine(folder_of("lfm2"), kernels="rtl")
    dense = replace(load_config(folder_of("lfm2")), recurrent=None)
    for change, what in (
        ({"activation": "relu2"}, "squared ReLU"),
        ({"without_mixer": frozenset({1})}, "layers without attention"),
    ):
        options = EngineOptions(folder_of("lfm2"), kernels="rtl")
        with pytest.raises(RequestError, match=f"the hardware source has no {what}"):
            options.held(replace(dense, **change))
        assert EngineOptions(folder_of("lfm2")).held(replace(dense, **change)) is not None
