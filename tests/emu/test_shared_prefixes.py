"""Shared prefixes on emulated boards: fewer rows, the same bytes, for all types of the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_sdk import Engine, Result, SamplingParams
from tests.adapter_folders import Folder, write_adapter
from tests.recovery_rig import speculation, write_folders
from tests.variants import variant, write_checkpoint

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True, logprobs=5)
STEM = [(i * i * 7 + 3 * i) % 200 for i in range(75)]
PROMPTS = [STEM, [*STEM[:70], 1, 2, 3], [*STEM, 9, 9], STEM[:33], [*STEM[:64], *STEM[:40]]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("model"))


def outputs(engine: Engine, **fields: object) -> list[Result]:
    """Every prompt alone, then all at once, then sampled."""
    found: list[Result] = []
    sampled = SamplingParams(
        max_tokens=8, ignore_eos=True, logprobs=3, temperature=0.9, seed=3, n=2, **fields
    )  # type: ignore[arg-type]
    for prompt in PROMPTS:
        result = engine.generate(prompt, PARAMS)
        assert isinstance(result, Result)
        found.append(result)
    found += engine.generate(PROMPTS, PARAMS)
    found += engine.generate(PROMPTS, sampled)
    return found


@pytest.mark.parametrize("kv", ["fp16", "int8-heads"])
@pytest.mark.parametrize("boards", [1, 2])
def test_logits_are_equal_to_the_bit(model: Path, kv: str, boards: int) -> None:
    """Log probabilities show every bit of a difference in K or V that reaches the logits."""
    found = []
    for cached in (True, False):
        with Engine(
            model, boards=boards, max_sequences=4, kv=kv, prefix_cache=cached, threads=1
        ) as engine:
            found.append(outputs(engine))
            use = engine.kv_use
            assert use.total == use.held + use.cached + use.free
            assert (use.cached_tokens > 900) == cached and (use.cached > 0) == cached
    with_cache, without = found
    assert [r.outputs for r in with_cache] == [r.outputs for r in without]
    assert with_cache[1].cached_tokens == 70 and not any(r.cached_tokens for r in without)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    root = tmp_path_factory.mktemp("adapters")
    names = ("first", "second")
    yield [write_adapter(variant("llama_narrow"), Folder(n, rank=8), root / n) for n in names]


def test_an_adapter_is_known_by_its_content(model: Path, adapters: list[Path]) -> None:
    first, second = adapters
    with Engine(model, max_adapters=1, max_adapter_rank=8, threads=1) as engine:

        def run(name: str | None) -> Result:
            result = engine.generate(
                STEM, SamplingParams(max_tokens=4, adapter=name, ignore_eos=True, logprobs=2)
            )
            assert isinstance(result, Result)
            return result

        engine.load_adapter("x", first)
        of_first = run("x")
        assert run("x").cached_tokens == 74 and run(None).cached_tokens == 0
        engine.unload_adapter("x")
        engine.load_adapter("x", second)
        of_second = run("x")
        assert of_second.cached_tokens == 0 and of_second.outputs != of_first.outputs
        engine.load_adapter("y", first)
        again = run("y")  # the same weights under another name
        assert again.cached_tokens == 74 and again.outputs == of_first.outputs


def test_only_drafts_that_take_hidden_states_compute_all_tokens(tmp_path: Path) -> None:
    """Beams have no drafts: they share what the others computed, with the same scores."""
    folders = write_folders(tmp_path)
    searched, texts = [], []
    for drafts in (None, speculation(folders, "eagle3")):
        with Engine(folders.model, speculation=drafts, threads=1) as engine:
            for _ in range(2):
                result = engine.generate(STEM, max_tokens=8, ignore_eos=True)
                assert isinstance(result, Result)
                texts.append(result.token_ids)
            assert result.cached_tokens == (0 if drafts else 74)
            found = engine.beam_search(STEM, beam_width=2, n=2, max_tokens=6)
            assert isinstance(found, Result) and found.cached_tokens == 74
            searched.append(found.outputs)
    assert searched[0] == searched[1] and len(set(texts)) == 1
