"""What a token costs behind a long text. The text's K and V are random and brought in, so that
nothing is computed before."""

from __future__ import annotations

import time

import numpy as np

from lora_sdk.engine.engine import Engine
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.model.kv_formats import KvKind

TOKENS = 6  # that are timed


def random_kv(engine: Engine, kind: KvKind, count: int) -> KvArrays:
    """K and V of `count` positions in the format that `engine` holds."""
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
    static = engine.export_kv(sequence)
    engine.release(sequence)
    return KvArrays("int8", k, v, static.k_scales, static.v_scales)


def held_text(engine: Engine, kv: KvArrays, count: int) -> int:
    """A sequence of `count` positions with `kv`."""
    return engine.import_kv([5] * count, kv)


def token_seconds(engine: Engine, sequence: int) -> float:
    """Seconds of a token behind what `sequence` holds; it grows by TOKENS."""
    began = time.perf_counter()
    for _ in range(TOKENS):
        engine.prefill(sequence, [7])
    return (time.perf_counter() - began) / TOKENS
