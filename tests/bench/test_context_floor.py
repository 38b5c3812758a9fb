"""What a token costs behind a long text, beside one behind a short text: a model as wide as a
LLaMA of a billion parameters, grouped heads. The text's K and V are random and brought in, so that
nothing is computed before. Ratios within one run."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from lora_sdk import Engine, KvArrays
from lora_sdk.bench.memory import bound_threads
from lora_sdk.quant.recipe import Recipe
from lora_sdk.synth.folder import synthesize

pytestmark = pytest.mark.bench

SHORT, LONG, ROUNDS, TOKENS, TRIES = 128, 16384, 7, 6, 3
MARGIN = 1.1  # a machine with other work
WIDE = {  # four of the layers, and a quarter of the vocabulary: their shares stay
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32064,
    "max_position_embeddings": 16640, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


def random_kv(engine: Engine, kind: str, count: int) -> KvArrays:
    config = engine.config
    shape = (config.layers, config.kv_heads, count, config.head_dim)
    draw = np.random.default_rng(1)
    k, v = (draw.integers(-60, 61, shape, dtype=np.int8) for _ in range(2))
    if kind == "fp16":
        return KvArrays(kind, (k / np.float16(40)), (v / np.float16(40)))
    if kind == "int8-heads":
        scales = np.full(shape[:3], 1 / 40, np.float16)
        return KvArrays(kind, k, v, scales, scales)
    sequence = engine.open_sequence()
    engine.prefill(sequence, [5])
    scales = engine.export_kv(sequence)
    engine.release(sequence)
    return KvArrays("int8", k, v, scales.k_scales, scales.v_scales)


def per_token(engine: Engine, sequence: int) -> float:
    began = time.perf_counter()
    for _ in range(TOKENS):
        engine.prefill(sequence, [7])
    return (time.perf_counter() - began) / TOKENS


def ratio(engine: Engine, held: dict[int, int]) -> float:
    """The median of rounds that alternate."""
    found = []
    for _ in range(ROUNDS + 1):  # the first warms up
        short, long = (per_token(engine, held[count]) for count in (SHORT, LONG))
        found.append(long / short)
    return statistics.median(found[1:])


@pytest.mark.parametrize(("kind", "floor"), [("int8", 1.4), ("fp16", 1.6), ("int8-heads", None)])
def test_a_token_at_16k_beside_one_at_128(
    kind: str, floor: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rounds are repeated before they fail: other programs disturb each of them."""
    config, folder = tmp_path / "config.json", tmp_path / "model"
    config.write_text(json.dumps(WIDE))
    synthesize(config, folder, recipe=Recipe("w8a8", kv="int8") if kind == "int8" else None)
    setup = {"kv": kind} if kind == "int8-heads" else {}
    with bound_threads(2), Engine(folder, boards=1, max_sequences=2, threads=2, **setup) as engine:
        kv = {count: random_kv(engine, kind, count) for count in (SHORT, LONG)}
        held = {count: engine.import_kv([5] * count, one) for count, one in kv.items()}
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
