"""Parity through the public interface: Engine's own rows, steps and commits, teacher-forced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lora_sdk import Engine, Result, SamplingParams
from tests.drive import Logits
from tests.parity.score import SCALES, load_fixture, prompts, score
from tests.variants import Scale, variant, write_checkpoint

CHUNK = 37  # rows a step


def forced(engine: Engine, tokens: list[int]) -> Logits:
    """Logits after each token, committed chunk by chunk: float32 [tokens, vocabulary]."""
    sequence = engine.open_sequence()
    parts = []
    for start in range(0, len(tokens), CHUNK):
        rows = engine.rows(sequence, tokens[start : start + CHUNK])
        result = engine.step(rows)
        assert result.logits is not None
        parts.append(result.logits)
        engine.commit(sequence, [row.slot for row in rows])
    engine.release(sequence)
    return np.concatenate(parts)


@pytest.mark.parametrize("scale", SCALES)
def test_the_engine_agrees_with_transformers(
    scale: Scale, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    which = variant("llama_gqa_bias")
    folder = write_checkpoint(which, tmp_path, scale)
    tokens = [prompt.tolist() for prompt in prompts(which)]
    with Engine(folder, boards=4, devices=devices) as engine:
        ours = [forced(engine, prompt) for prompt in tokens]
        following = [engine.generate(prompt, SamplingParams(max_tokens=1)) for prompt in tokens]
    found = score(ours, load_fixture(which.name), scale)
    assert found.positions >= 512 and found.passes(scale), found
    for logits, result in zip(ours, following, strict=True):
        assert isinstance(result, Result)
        assert result.token_ids == (int(logits[-1].argmax()),)
