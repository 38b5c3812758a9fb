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

SHORT, LONG, ROUNDS, TOKENS = 128, 16384, 7, 6
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


@pytest.mark.parametrize(("kind", "floor"), [("int8", 1.4), ("fp16", None)])
def test_a_token_at_16k_beside_one_at_128(
    kind: str, floor: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = tmp_path / "config.json", tmp_path / "model"
    config.write_text(json.dumps(WIDE))
    synthesize(config, folder, recipe=Recipe("w8a8", kv="int8") if kind == "int8" else None)
    with bound_threads(2), Engine(folder, boards=1, max_sequences=2, threads=2) as engine:
        kv = {count: random_kv(engine, kind, count) for count in (SHORT, LONG)}
        held = {count: engine.import_kv([5] * count, one) for count, one in kv.items()}
        ratios = []
        for _ in range(ROUNDS + 1):  # the first warms up
            short, long = (per_token(engine, held[count]) for count in (SHORT, LONG))
            ratios.append(long / short)
        table = 2 * engine.config.vocabulary * engine.config.hidden  # of which a row is read
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) - table
    found = statistics.median(ratios[1:])
    by_bytes = 1 + (kv[LONG].bytes - kv[SHORT].bytes) / (weights + kv[SHORT].bytes)
    with capsys.disabled():
        print(f"\nmeasured  a token at 16k beside one at 128, {kind} KV: {found:.2f} times; "
              f"by bytes {by_bytes:.2f}; floor 1.4, goal 1.15 for int8")  # fmt: skip
    assert floor is None or found <= floor
