"""What a token costs behind a long text, beside one behind a short text: a model as wide as a
LLaMA of a billion parameters, grouped heads. Ratios within one run."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from lora_lab.bench.long_context import held_text, random_kv, token_seconds
from lora_lab.bench.memory import bound_threads
from lora_lab.bench.suite_rows import MEASUREMENTS
from lora_lab.bench.synthetic import SyntheticModels
from lora_sdk import Engine
from lora_sdk.model.kv_formats import KvKind

pytestmark = pytest.mark.bench

SHORT, LONG, ROUNDS, TRIES = 128, 16384, 7, 3
INT8_FLOOR = next(row.floor for one in MEASUREMENTS for row in one.rows if row.key == "context-16k")
MARGIN = 1.1  # a machine with other work


def ratio(engine: Engine, held: dict[int, int]) -> float:
    """The median of rounds that alternate."""
    found = []
    for _ in range(ROUNDS + 1):  # the first warms up
        short, long = (token_seconds(engine, held[count]) for count in (SHORT, LONG))
        found.append(long / short)
    return statistics.median(found[1:])


@pytest.mark.parametrize(
    ("kind", "floor"), [("int8", INT8_FLOOR), ("fp16", 1.6), ("int8-heads", None)]
)
def test_a_token_at_16k_beside_one_at_128(
    kind: KvKind, floor: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rounds are repeated before they fail: other programs disturb each of them."""
    scheme = "w8a8" if kind == "int8" else "fp16"
    folder = SyntheticModels(tmp_path).get("llama-1b-wide", scheme)
    setup = {"kv": kind} if kind == "int8-heads" else {}
    with bound_threads(2), Engine(folder, boards=1, max_sequences=2, threads=2, **setup) as engine:
        kv = {count: random_kv(engine, kind, count) for count in (SHORT, LONG)}
        held = {count: held_text(engine, one, count) for count, one in kv.items()}
        medians = [ratio(engine, held)]
        while floor is not None and medians[-1] > floor and len(medians) < TRIES:
            medians.append(ratio(engine, held))
        table = 2 * engine.config.vocabulary * engine.config.hidden  # of which a row is read
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) - table
    found = min(medians)
    by_bytes = 1 + (kv[LONG].bytes - kv[SHORT].bytes) / (weights + kv[SHORT].bytes)
    tries = ", ".join(f"{median:.2f}" for median in medians)
    with capsys.disabled():
        print(f"\nmeasured  a token at 16k beside one at 128, {kind} KV: {tries} times; "
              f"by bytes {by_bytes:.2f}; floor {floor}, goal 1.15 for int8")  # fmt: skip
    assert floor is None or found <= MARGIN * floor
