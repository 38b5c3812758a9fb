"""A model with a window in every layer through the engine: pages that no row sees any more are
given back and used again. No text changes, with samples, beams, trees, prefixes and lost boards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.kv.pages import RETURNED
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.recovery_rig import Disturbed, inject, texts
from tests.variants import variant, write_checkpoint

PROMPT = [(7 * i + i * i) % 280 + 3 for i in range(190)]
TREE = SpeculationOptions("lookup", None, TreeShape.by_width((2, 2, 1)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("mistral_window"), tmp_path_factory.mktemp("window"), "x3")


def requests() -> list[tuple[list[int], SamplingParams]]:
    kinds = ({}, {"temperature": 0.9}, {"temperature": 0.8, "n": 2})
    return [
        (
            [*PROMPT[: 190 - 60 * i], 5 + i],
            SamplingParams(max_tokens=40, ignore_eos=True, seed=i, **kind),  # type: ignore[arg-type]
        )
        for i, kind in enumerate(kinds)
    ]


@contextmanager
def opened(folder: Path, **options: object) -> Iterator[Engine]:
    with Engine(folder, boards=2, max_sequences=4, **options) as engine:  # type: ignore[arg-type]
        yield engine


@pytest.fixture(scope="module")
def want(folder: Path) -> list[object]:
    """The texts where every sequence keeps its pages."""
    with opened(folder) as engine:
        engine._cache._window = 0
        return texts(engine, requests())


@pytest.mark.parametrize("speculation", [None, TREE])
def test_texts_are_the_same_also_after_failures(
    folder: Path, want: list[object], speculation: SpeculationOptions | None
) -> None:
    with opened(folder, speculation=speculation) as engine:
        assert texts(engine, requests()) == want
        fail = {step: lambda: inject(engine, 1, abi.FAULT_DONE_LOST) for step in (2, 30, 45)}
        with Disturbed(engine, fail):
            assert texts(engine, requests()) == want
        assert len(engine.recoveries) >= 2
        assert texts(engine, requests()) == want  # from cached prefixes


def test_beams_are_the_same(folder: Path) -> None:
    params, found = BeamSearchParams(beam_width=3, n=3, max_tokens=20), []
    for window in (0, 70):
        with opened(folder) as engine:
            engine._cache._window = window
            result = engine.beam_search(PROMPT, params)
            assert isinstance(result, Result)
            found.append([(one.token_ids, one.score) for one in result.outputs])
    assert found[0] == found[1]


def test_a_long_sequence_holds_few_pages_and_is_not_exported(folder: Path) -> None:
    with opened(folder) as engine:
        sequence = engine.open_sequence()
        engine.prefill(sequence, PROMPT[:100])
        assert engine.export_kv(sequence).positions == 100
        engine.prefill(sequence, PROMPT)
        pages = engine._cache.pages(sequence)
        assert len(pages) == -(-engine.length(sequence) // 32)
        assert pages.count(RETURNED) == (engine.length(sequence) + 1 - 70) // 32
        inject(engine, 1, abi.FAULT_DONE_LOST)
        with pytest.raises(RequestError, match="has given back its first pages"):
            engine.export_kv(sequence)
