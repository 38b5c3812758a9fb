"""Seconds that an exact worker in torch takes from tokens to K, V and logits on the host, for four
layers of LLaMA2-7B's width. On a GPU: `pytest -s -m bench --prefill cuda:0` and this file."""

from __future__ import annotations

import statistics
import time

import pytest

from lora_sdk.prefill.job import Job, Part
from tests import prefill_option
from tests.random_source import SCHEMES, RandomSource

pytestmark = pytest.mark.bench

LENGTHS, RUNS = (128, 512, 2048), 5


def seconds(scheme: str, lengths: tuple[int, ...] = LENGTHS) -> list[float]:
    """The median of some runs of each length."""
    from lora_sdk.prefill.exact.computer import ExactComputer

    source = RandomSource("llama2-7b", 4, scheme)
    worker = ExactComputer(source.config, source, max(lengths), *prefill_option.opened())
    found = []
    for length in lengths:
        tokens, times = [(i * i * 7 + 3 * i) % 30000 for i in range(length)], []
        for _ in range(RUNS + 1):
            job, parts = Job(tokens, None, lambda: True), list[Part]()
            begin = time.perf_counter()
            worker.compute(job, parts.append)
            times.append(time.perf_counter() - begin)
            assert job.logits is not None
        found.append(statistics.median(times[1:]))
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_seconds_from_tokens_to_logits(scheme: str) -> None:
    if not prefill_option.chosen.startswith(("cuda", "torch:cuda")):
        pytest.skip("hours on a CPU: --prefill cuda:0 names a GPU")
    print(f"\n{prefill_option.chosen} {scheme}:", end="")
    for length, taken in zip(LENGTHS, seconds(scheme), strict=True):
        print(f"  {length} tokens {taken:.4f} s", end="")
