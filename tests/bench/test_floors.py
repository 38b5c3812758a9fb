"""The speed that emulation must reach on an idle machine of two cores: `make bench` prints the
figures beside their floors and goals. Comparisons with other programs are made outside, on models
of the same shapes on two threads, with the figures in tokens/s: decode and prefill of 32 rows with
llama.cpp in F16, prefill of 32 and 256 rows with transformers in float32 (logits_to_keep=1)."""

from __future__ import annotations

from typing import Any

import pytest

from lora_lab.bench.measure import compare
from lora_lab.bench.memory import bound_threads
from lora_lab.bench.rounds import Workload
from lora_lab.bench.synthetic import SyntheticModels

pytestmark = pytest.mark.bench

ROUNDS = 7
THREADS = 2


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SyntheticModels:
    """Folders of shapes, each written once."""
    return SyntheticModels(tmp_path_factory.mktemp("models"))


def run(*works: Workload) -> list[dict[str, Any]]:
    with bound_threads(THREADS):
        return compare(works, ROUNDS)


def show(what: str, found: float, floor: float | None, goal: float | None, unit: str = "") -> None:
    limits = "" if floor is None else f"  floor {floor:g}, goal {goal:g}"
    print(f"\nmeasured  {what:64}{found:10.2f} {unit:9}{limits}", end="")


def test_decode_and_prefill_of_gpt2_345m(models: SyntheticModels) -> None:
    """Four boards beside one, prefill of 32 rows."""
    folder = models.get("gpt2-345m")
    one, four = run(*(Workload(folder, boards, THREADS, 32, 64) for boards in (1, 4)))
    ratio = four["decode_tokens_per_second"] / one["decode_tokens_per_second"]
    overhead = four["host_seconds_per_step"] * 1e6
    show("decode, gpt2-345m, 1 board", one["decode_tokens_per_second"], None, None, "tokens/s")
    show("decode, gpt2-345m, 4 boards against 1 board", ratio, 0.85, 0.95)
    show("prefill, gpt2-345m, 32 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")
    show("  host a step, 4 boards, state out of the cache", overhead, None, None, "us")
    assert ratio >= 0.85


def test_prefill_of_256_rows(models: SyntheticModels) -> None:
    (one,) = run(Workload(models.get("gpt2-345m"), 1, THREADS, 256, 4))
    show("prefill, gpt2-345m, 256 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")


def test_decode_of_a_demo_size_model(models: SyntheticModels) -> None:
    folder = models.get("demo-size")
    one, four = run(*(Workload(folder, boards, THREADS, 32, 64) for boards in (1, 4)))
    show("decode, demo size, 1 board", one["decode_tokens_per_second"], None, None, "tokens/s")
    show("prefill, demo size, 32 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")
    overhead = four["host_seconds_per_step"] * 1e6
    show("host overhead a step, demo size, 4 boards", overhead, 100, 50, "us")
    assert overhead <= 100


def test_loading_of_gpt2_1_5b(models: SyntheticModels) -> None:
    (one,) = run(Workload(models.get("gpt2-1.5b"), 1, THREADS, 32, 1))
    share = one["share_of_copy_bandwidth"]
    show("loading, gpt2-1.5b", one["loading_bytes_per_second"] / 1e9, None, None, "GB/s")
    show("  against memcpy into fresh pages", share, 0.5, 0.8)
    show("  checksums by the boards", one["check_bytes_per_second"] / 1e9, None, None, "GB/s")
    assert share >= 0.5
