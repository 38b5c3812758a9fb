"""Batches with a draft model: any number of prompts of any lengths, with any tree, gives the tokens
of plain decoding. Sequences share the draft's scratch slots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_sdk import Engine, Result, SamplingParams, demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.draft_folders import write_draft_model
from tests.variants import variant, write_checkpoint

WHICH = variant("llama_narrow")
LONGEST = 250
TREES = (
    *(TreeShape.chain(size) for size in (2, 6, 16)),
    TreeShape.by_width((3, 2, 1)),
    TreeShape.by_width((1, 7, 1)),
)


class Pair:
    """Plain decoding and a drafting engine whose tree the test chooses."""

    def __init__(self, folder: Path, draft: Path, proposer: str = "draft") -> None:
        self.tree = TREES[0]
        options = SpeculationOptions(proposer, draft, lambda context: self.tree, window=48)
        self.plain = Engine(folder, max_sequences=64)
        self.drafting = Engine(folder, max_sequences=64, speculation=options)

    def compare(self, random: random.Random, most: int) -> None:
        """One random combination."""
        count = random.randint(2, most)
        lengths = [random.randint(1, LONGEST) for _ in range(count)]
        if random.random() < 0.5:  # all are at the same point of their prompts
            lengths = lengths[:1] * count
        prompts = [[random.randrange(3, 290) for _ in range(length)] for length in lengths]
        params = [
            SamplingParams(max_tokens=random.randint(1, 12), ignore_eos=True) for _ in prompts
        ]
        self.tree = random.choice(TREES)
        assert tokens(self.drafting, prompts, params) == tokens(self.plain, prompts, params), (
            lengths,
            self.tree,
        )

    def close(self) -> None:
        self.plain.close()
        self.drafting.close()


def tokens(
    engine: Engine, prompts: list[list[int]], params: list[SamplingParams] | SamplingParams
) -> list[tuple[int, ...]]:
    results = engine.generate(prompts, params)
    assert isinstance(results, list) and all(isinstance(one, Result) for one in results)
    return [result.token_ids for result in results]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    where = tmp_path_factory.mktemp("batches")
    return write_checkpoint(WHICH, where / "model"), write_draft_model(WHICH, where / "draft")


@pytest.fixture(scope="module")
def pair(folders: tuple[Path, Path]) -> Iterator[Pair]:
    opened = Pair(*folders)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_batches_of_any_lengths_give_plain_tokens(pair: Pair, seed: int) -> None:
    draws = random.Random(seed)
    for _ in range(6):
        pair.compare(draws, most=12 if seed else 64)


@pytest.mark.parametrize("proposer", ["draft", "longspec"])
def test_a_draft_that_is_right_gives_plain_tokens(
    folders: tuple[Path, Path], proposer: str
) -> None:
    """The model drafts for itself, so that blocks are accepted and committed whole."""
    pair = Pair(folders[0], folders[0], proposer)
    draws = random.Random(1)
    for _ in range(12):
        pair.compare(draws, most=4)
    assert pair.drafting.speculation is not None
    assert pair.drafting.speculation.mean_emitted > 1.2
    pair.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 8))]
)
def test_many_batches_give_plain_tokens(pair: Pair, seed: int) -> None:
    draws = random.Random(1000 + seed)
    for _ in range(40):
        pair.compare(draws, most=64)


def test_three_prompts_of_the_demo_model() -> None:
    """The smallest batch in which rows of one sequence once filled the slots of the others."""
    prompts = [[(7 * i + k) % 900 + 3 for i in range(126)] for k in range(3)]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    draft = demo_model_path().parent / "demo_draft"
    options = SpeculationOptions("draft", draft, TreeShape.chain(6))
    with Engine() as plain, Engine(speculation=options) as drafting:
        assert tokens(drafting, prompts, params) == tokens(plain, prompts, params)
