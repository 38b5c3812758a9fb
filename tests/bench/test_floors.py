"""The speed that emulation must reach on an idle machine of two cores: `make bench` prints the
figures beside their floors and goals. Comparisons with other programs are made outside, on models
of the same shapes on two threads, with the figures in tokens/s: decode and prefill of 32 rows with
llama.cpp in F16, prefill of 32 and 256 rows with transformers in float32 (logits_to_keep=1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lora_sdk.bench.measure import compare
from lora_sdk.bench.memory import bound_threads
from lora_sdk.bench.rounds import Workload
from lora_sdk.synth.folder import synthesize

pytestmark = pytest.mark.bench

ROUNDS = 7
THREADS = 2
Models = Callable[[str], Path]

DEMO_SIZE = {  # a small model of the demo's shape: it stays in the cache
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 704, "vocab_size": 2048,
    "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Folder of a shape, written once."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp("models") / name
            source: str | Path = name
            if name == "demo-size":
                source = _demo_config(folder.parent / "source")
            synthesize(source, folder)
            made[name] = folder
        return made[name]

    return get


def _demo_config(folder: Path) -> Path:
    import json

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DEMO_SIZE))
    return folder


def run(*works: Workload) -> list[dict[str, Any]]:
    with bound_threads(THREADS):
        return compare(works, ROUNDS)


def show(what: str, found: float, floor: float | None, goal: float | None, unit: str = "") -> None:
    limits = "" if floor is None else f"  floor {floor:g}, goal {goal:g}"
    print(f"\nmeasured  {what:64}{found:10.2f} {unit:9}{limits}", end="")


def test_decode_and_prefill_of_gpt2_345m(models: Models) -> None:
    """Share of the read bandwidth on one board, four boards beside one, prefill of 32 rows."""
    folder = models("gpt2-345m")
    one, four = run(*(Workload(folder, boards, THREADS, 32, 64) for boards in (1, 4)))
    share = one["share_of_read_bandwidth"]
    ratio = four["decode_tokens_per_second"] / one["decode_tokens_per_second"]
    overhead = four["host_seconds_per_step"] * 1e6
    show("decode, gpt2-345m, 1 board", one["decode_tokens_per_second"], None, None, "tokens/s")
    show("  share of read bandwidth", share, 0.82, 0.93)
    show("decode, gpt2-345m, 4 boards against 1 board", ratio, 0.85, 0.95)
    show("prefill, gpt2-345m, 32 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")
    show("  host a step, 4 boards, state out of the cache", overhead, None, None, "us")
    assert share >= 0.82 and ratio >= 0.85


def test_prefill_of_256_rows(models: Models) -> None:
    (one,) = run(Workload(models("gpt2-345m"), 1, THREADS, 256, 4))
    show("prefill, gpt2-345m, 256 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")


def test_decode_of_a_demo_size_model(models: Models) -> None:
    folder = models("demo-size")
    one, four = run(*(Workload(folder, boards, THREADS, 32, 64) for boards in (1, 4)))
    ratio = four["decode_tokens_per_second"] / one["decode_tokens_per_second"]
    show("decode, demo size, 1 board", one["decode_tokens_per_second"], None, None, "tokens/s")
    show("prefill, demo size, 32 rows", one["prefill_tokens_per_second"], None, None, "tokens/s")
    overhead = four["host_seconds_per_step"] * 1e6
    show("decode, demo size, 4 boards against 1 board", ratio, 0.6, 0.75)
    show("host overhead a step, demo size, 4 boards", overhead, 100, 50, "us")
    assert ratio >= 0.6 and overhead <= 100


def test_loading_of_gpt2_1_5b(models: Models) -> None:
    (one,) = run(Workload(models("gpt2-1.5b"), 1, THREADS, 32, 1))
    share = one["share_of_copy_bandwidth"]
    show("loading, gpt2-1.5b", one["loading_bytes_per_second"] / 1e9, None, None, "GB/s")
    show("  against memcpy into fresh pages", share, 0.5, 0.8)
    show("  checksums by the boards", one["check_bytes_per_second"] / 1e9, None, None, "GB/s")
    assert share >= 0.5
