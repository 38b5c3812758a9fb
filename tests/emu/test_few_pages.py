"""Many mixed requests on emulated boards with a third of the pages that they need."""

from __future__ import annotations

from typing import Any

import pytest

from lora_sdk import BeamSearchParams, Result, SamplingParams
from lora_sdk.kv.pages import pages_for
from tests.few_pages import few_pages
from tests.recovery_rig import Folders, mixed, opened, write_folders

PAGES = 20
SEQUENCES = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("few"))


def requests(count: int) -> list[tuple[list[int], SamplingParams]]:
    """Greedy, sampled, several samples, adapters, searches; some with common prefixes."""
    found: list[tuple[list[int], SamplingParams]] = []
    for seed in range(count // 10):
        each: list[tuple[list[int], Any]] = list(mixed(seed, 9, tokens=150))
        prompt = each[0][0]
        each[3] = ([*prompt, *each[3][0]][:80], each[3][1])
        search = BeamSearchParams(beam_width=3, n=2, max_tokens=20, temperature=0.9 * (seed % 2),
                                  seed=seed)  # fmt: skip
        found += [*each, (prompt, search)]
    return found


def needed(every: list[tuple[list[int], SamplingParams]]) -> float:
    """Pages of the sequences that could be open together, on average."""
    pages = [
        pages_for(len(prompt) + (params.max_tokens or 0) - 1)
        for prompt, params in every
        for _ in range(getattr(params, "beam_width", params.n))
    ]
    return SEQUENCES * sum(pages) / len(pages)


def outputs(result: Result) -> list[Any]:
    return [(one.token_ids, one.score, one.finish_reason) for one in result.outputs]


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_every_text_is_that_of_the_request_alone(folders: Folders, count: int) -> None:
    wanted, every = [], requests(count)
    assert needed(every) >= 3 * PAGES
    with opened(folders, 2, prefix_cache=False) as engine:
        for prompt, params in every:
            result = engine.generate(prompt, params)
            assert isinstance(result, Result)
            wanted.append(outputs(result))
    for offload in (None, 1 / 1024):
        with opened(folders, 2, max_sequences=SEQUENCES, kv_offload=offload) as engine:
            few_pages(engine, PAGES)
            results = engine.generate([p for p, _ in every], [one for _, one in every])
            assert isinstance(results, list)
            assert [outputs(result) for result in results] == wanted
            use = engine.kv_use
            assert use.preempted >= count // 15
            assert (use.host is not None and use.host.found > 0) == (offload is not None)
            engine._stepper.flush()
            assert engine.kv_use.held == 0
