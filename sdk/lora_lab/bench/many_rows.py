"""How fast many rows go through a model: prompts, and requests that decode together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lora_sdk.engine.engine import Engine
from lora_sdk.sampling import SamplingParams

_PROMPT, _WARM = 4, 2  # tokens of each request before those that are timed


def prompt_rate(engine: Engine, rows: int) -> float:
    """Rows a second of a prompt of `rows` tokens, and the logits of the last one."""
    tokens = _tokens(engine, 1, rows)[0]
    sequence = engine.open_sequence()
    try:
        began = time.perf_counter()
        engine.prefill(sequence, tokens)
        return rows / (time.perf_counter() - began)
    finally:
        engine.release(sequence)


def together_rate(engine: Engine, requests: int, tokens: int) -> float:
    """New tokens a second of `requests` that decode together, greedily: the time of `tokens` each,
    without that of their prompts and first tokens."""
    prompts = _tokens(engine, requests, _PROMPT)
    short, long = (_seconds(engine, prompts, _WARM + count) for count in (0, tokens))
    return requests * tokens / (long - short)


def open_many(folder: Path, requests: int, threads: int, context: int) -> Engine:
    """One board with room for `requests`, nothing kept from one to the next."""
    return Engine(
        folder, boards=1, threads=threads, max_sequences=requests, context=context,
        prefix_cache=False,
    )  # fmt: skip


def _seconds(engine: Engine, prompts: list[list[int]], tokens: int) -> float:
    began = time.perf_counter()
    engine.generate(prompts, SamplingParams(max_tokens=tokens, ignore_eos=True))
    return time.perf_counter() - began


def _tokens(engine: Engine, count: int, length: int) -> list[list[int]]:
    draw: Sequence[Sequence[int]] = (
        np.random.default_rng(1).integers(0, engine.config.vocabulary, (count, length)).tolist()
    )
    return [list(row) for row in draw]
