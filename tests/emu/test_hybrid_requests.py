"""Random requests of models with recurrences, in engines that share prefixes, fork, have few pages,
draft trees and lose boards: the texts of plain runs, one request after another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lora_host import abi
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.few_pages import few_pages
from tests.recovery_rig import inject

NAMES = ("lfm2", "lfm2_moe", "qwen3_next_mixed", "qwen3_5", "qwen3_5_moe", "granitemoehybrid",
         "falcon_h1", "nemotron_h")  # fmt: skip
REQUESTS = 64  # of each
ROUND = 8  # at once
TOKENS = 250


@dataclass(frozen=True)
class Way:
    """How an engine runs its part of the requests."""

    boards: int
    pages: int = 0
    tree: TreeShape | None = None
    itself: bool = False  # the model drafts for itself
    faults: bool = False


WAYS = (Way(1, pages=8), Way(2, faults=True), Way(4, tree=TreeShape.by_width((2, 2, 1))),
        Way(1, pages=10, tree=TreeShape.chain(5), itself=True))  # fmt: skip


def requests(name: str) -> list[tuple[list[int], SamplingParams]]:
    """Prompts of a few stems, with lengths around the ends of pages; greedy, sampled, forked."""
    draw = random.Random(name)
    stems = [[draw.randrange(TOKENS) for _ in range(90)] for _ in range(4)]
    found = []
    for number in range(REQUESTS):
        stem = draw.choice(stems)[: draw.choice((5, 31, 32, 33, 64, 70, 90))]
        prompt = [*stem, *(draw.randrange(TOKENS) for _ in range(draw.choice((0, 1, 3, 30))))]
        heat, several = draw.choice(((0.0, 1), (0.0, 1), (0.8, 1), (0.9, 2)))
        tokens = draw.choice((1, 7, 20, 34))
        found.append((prompt, SamplingParams(
            max_tokens=tokens, ignore_eos=True, logprobs=2, temperature=heat, seed=number,
            n=several)))  # fmt: skip
    return found


def run_round(
    engine: Engine, part: list[tuple[list[int], SamplingParams]]
) -> list[tuple[object, ...]]:
    found = engine.generate([prompt for prompt, _ in part], [params for _, params in part])
    assert isinstance(found, list)
    return [tuple(result.outputs) for result in found]


def options(way: Way, folder: Path) -> SpeculationOptions | None:
    if way.tree is None:
        return None
    kind = "draft" if way.itself else "lookup"
    return SpeculationOptions(kind, folder if way.itself else None, way.tree)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_texts_are_those_of_plain_runs(name: str, folder_of: Callable[[str], Path]) -> None:
    folder, wanted = folder_of(name), requests(name)
    with Engine(folder, max_sequences=2, prefix_cache=False, threads=1) as engine:
        alone = [engine.generate(prompt, params) for prompt, params in wanted]
    plain = [tuple(result.outputs) for result in alone if isinstance(result, Result)]
    shared = recovered = drafted = 0
    each = REQUESTS // len(WAYS)
    for index, way in enumerate(WAYS):
        with Engine(
            folder, boards=way.boards, max_sequences=4, threads=1, speculation=options(way, folder)
        ) as engine:
            if way.pages:
                few_pages(engine, way.pages)
            for first in range(index * each, (index + 1) * each, ROUND):
                if way.faults:
                    inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
                part = slice(first, first + ROUND)
                assert run_round(engine, wanted[part]) == plain[part], (way, first)
            shared += engine.kv_use.cached_tokens
            recovered += len(engine.recoveries)
            drafted += way.tree is not None and engine.speculation is not None
    assert shared > 500 and recovered >= 2 and drafted == 2
