"""Long texts: logits are the same bytes on 1, 2, 4 and 8 boards behind 16,384, 65,536 and 131,072
positions, and those of an independent implementation behind 8192."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import native
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, KvArrays
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.quant.recipe import Recipe
from tests.oracle.arithmetic import F32, attend
from tests.oracle.forward import Oracle, load_weights

pytestmark = pytest.mark.slow

TAIL = [5, 9, 200, 31, 7]
SHAPE = {
    "model_type": "llama", "num_hidden_layers": 1, "vocab_size": 301, "tie_word_embeddings": False,
    "intermediate_size": 256, "max_position_embeddings": 131072 + 64, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
WIDE = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2}
NARROW = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def write(kind: str) -> Path:
        root = tmp_path_factory.mktemp(kind)
        config = root / "config.json"
        config.write_text(json.dumps(SHAPE | (NARROW if kind == "oracle" else WIDE)))
        recipe = Recipe("w8a8", kv="int8") if kind == "int8" else None
        synthesize(config, root / "model", recipe=recipe)
        return root / "model"

    return write


def random_kv(engine: Engine, kind: str, count: int) -> KvArrays:
    """V of later positions is lower: the sums come near 0, so that their order shows."""
    config = engine.config
    shape = (config.layers, config.kv_heads, count, config.head_dim)
    draw = np.random.default_rng(count)
    k, v = (draw.integers(-50, 51, shape, dtype=np.int8) for _ in range(2))
    if kind == "fp16":
        sway = np.linspace(800, -800, count)[:, None] + v
        return KvArrays(kind, k / np.float16(32), sway.astype(np.float16))
    sequence = engine.open_sequence()
    engine.prefill(sequence, TAIL)
    made = engine.export_kv(sequence)
    engine.release(sequence)
    if kind == "int8-heads":
        scales = np.full(shape[:3], 0.02, np.float16)
        return KvArrays("int8-heads", k, v, scales, scales)
    return KvArrays("int8", k, v, made.k_scales, made.v_scales)


def logits(folder: Path, boards: int, kind: str, count: int, alone: bool = False) -> bytes:
    """Of the last row behind `count` positions, rows together or one by one."""
    kv_option = "auto" if kind == "int8" else kind
    options: Any = {"max_sequences": 1, "threads": 2, "context": count + 64, "kv": kv_option}
    with Engine(folder, boards=boards, **options) as engine:
        sequence = engine.import_kv([3] * count, random_kv(engine, kind, count))
        for part in [[token] for token in TAIL] if alone else [TAIL]:
            found = engine.prefill(sequence, part)
        assert np.isfinite(found).all()
        return found.tobytes()


@pytest.mark.parametrize(
    ("kind", "count"),
    [("fp16", 16384), ("int8-heads", 16384), ("int8", 65536), ("fp16", 65536), ("fp16", 131072),
     ("int8", 131072)],
)  # fmt: skip
def test_boards_agree(kind: str, count: int, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("int8" if kind == "int8" else "fp16")
    one = logits(folder, 1, kind, count)
    assert logits(folder, 1, kind, count, alone=True) == one
    for boards in (2, 4, 8):
        assert logits(folder, boards, kind, count) == one, boards
    assert native.lib().lora_native_force(b"plain") == 0
    try:
        assert logits(folder, 2, kind, count) == one
    finally:
        native.lib().lora_native_force(native.ffi().NULL)


class LastRows(Oracle):
    """Of a model with one layer: the attention of the last rows, on which alone their logits
    depend."""

    rows = 256

    def _attend(self, layer: int, head: int, q: F32, k: F32, v: F32) -> F32:
        found = np.zeros_like(q)
        found[-self.rows :] = attend(q[-self.rows :], k, v, self.config.attention_scale(layer))
        return found


def test_the_oracle_behind_two_chunks(folder_of: Callable[[str], Path]) -> None:
    """Every row's K and V are computed; on two boards."""
    folder = folder_of("oracle")
    tokens = np.random.default_rng(1).integers(3, 300, 8192 + 512).tolist()
    checkpoint = Checkpoint.open(folder)
    oracle = LastRows(checkpoint.config, load_weights(checkpoint))
    wanted = oracle.logits(tokens)[-LastRows.rows :]
    with Engine(folder, boards=2, max_sequences=1, threads=2, context=8704) as engine:
        sequence = engine.open_sequence()
        engine.prefill(sequence, tokens[: -LastRows.rows])
        found = [engine.prefill(sequence, [token]) for token in tokens[-LastRows.rows :]]
    assert np.array(found).tobytes() == wanted.tobytes()
