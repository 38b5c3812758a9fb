"""What shared pages save in emulation: beams of a long prompt, and many requests with one prefix.
Ratios of processor time, which other programs disturb less than the wall clock."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from lora_lab.synth.folder import synthesize
from lora_sdk import BeamSearchParams, Engine, SamplingParams

pytestmark = pytest.mark.bench

PROMPT, PREFIX, REQUESTS, NEW = 768, 900, 64, 32
ALONE = 4  # requests that share nothing: each takes as long as many, nearly all of it its prompt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "gpt2-345m"
    synthesize("gpt2-345m", path)
    return path


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 50000, count).tolist()


@pytest.mark.parametrize("kv", ["fp16", "int8-heads"])
def test_four_beams_against_one(folder: Path, kv: str, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = tokens(1, PROMPT)
    with Engine(folder, boards=1, threads=1, kv=kv) as engine:

        def spent(width: int, count: int) -> float:
            began = time.process_time()
            engine.beam_search([prompt], BeamSearchParams(beam_width=width, max_tokens=count))
            return time.process_time() - began

        spent(1, 2)  # the prompt is cached from here on
        each: dict[int, float] = {}
        for _ in range(3):
            for width in (1, 4):
                a_token = (spent(width, 26) - spent(width, 2)) / 24
                each[width] = min(a_token, each.get(width, a_token))
    ratio = each[4] / each[1]
    with capsys.disabled():
        print(
            f"\n{kv}: 4 beams take {ratio:.2f} times one's time per token ({each[1] * 1e3:.0f} ms)"
        )
    assert ratio <= 2.0


def test_many_requests_with_one_prefix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [tokens(2, PREFIX) + tokens(3 + i, 8) for i in range(REQUESTS)]
    params = SamplingParams(max_tokens=NEW, ignore_eos=True)
    found: list[tuple[float, list[object]]] = []
    for cached, count in ((True, REQUESTS), (False, ALONE)):
        with Engine(folder, boards=1, threads=1, prefix_cache=cached) as engine:
            began = time.process_time()
            results = engine.generate(prompts[:count], params)
            each = (time.process_time() - began) / count
            found.append((each, [result.outputs for result in results[:ALONE]]))
    (shared, texts), (alone, same) = found
    with capsys.disabled():
        print(f"\n{alone / shared:.1f} times the requests a second by a shared prefix")
    assert texts == same and alone / shared >= 3
