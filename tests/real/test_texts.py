"""Texts and bits per byte of trained models, beside transformers in float32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lora_sdk import Engine
from lora_sdk.engine.evaluation import evaluate_text, plan_text
from lora_sdk.quant.reference import bits_of
from lora_sdk.text.windows import Window
from tests.real.conftest import FULL
from tests.real.reference import Reference

pytestmark = pytest.mark.real
PROMPTS = (
    "The capital of France is", "def fibonacci(n):\n", "Once upon a time", "Water boils at",
    "The three primary colours are", "import numpy as np\n", "1, 2, 3, 4,", "Dear Sir or Madam,",
    "El perro y el gato", "Die Hauptstadt von Deutschland", "\u65e5\u672c\u306e\u9996\u90fd\u306f",
    "To be, or not to be,", "The quick brown fox", "SELECT name FROM", "In 1969,",
    "<html>\n  <head>", "A recipe for bread:\n\n1.", "Q: What is 2 + 2?\nA:",
    "Roses are red,", "\U0001f600 means",
)  # fmt: skip
NEW = 6
MARGIN = 0.05
"""Logits: FP16 of boards against float32 may choose the other of two that are as near."""
TEXT = Path(__file__).parents[2] / "models" / "calibration.txt"
BYTES = (9000, pytest.param(20000, marks=FULL))
STRIDE = 1792


def test_greedy_texts_are_those_of_transformers(engine: Engine, reference: Reference) -> None:
    results = engine.generate(list(PROMPTS), max_tokens=NEW, ignore_eos=True)
    others = 0
    for prompt, result in zip(PROMPTS, results, strict=True):
        prefix = engine.tokenizer.encode(prompt)
        found = list(result.outputs[0].token_ids)
        assert len(found) == NEW
        logits = reference.logits([*prefix, *found])[len(prefix) - 1 : -1]
        gaps = logits.max(axis=1) - logits[np.arange(NEW), found]
        assert gaps.max() < MARGIN, (prompt, gaps)
        others += int((gaps > 0).sum())
    assert others <= len(PROMPTS) * NEW // 20


def bits_of_window(reference: Reference, tokens: Sequence[int], window: Window) -> float:
    """Bits of the window's scored tokens, some rows of logits in FP64 at a time."""
    logits = reference.logits(tokens[window.start : window.stop - 1])
    return bits_of(logits[window.scored - 1 - window.start :], tokens[window.scored : window.stop])


@pytest.mark.parametrize("engine", [2], indirect=True)
@pytest.mark.parametrize("size", BYTES)
def test_bits_per_byte_are_those_of_transformers(
    size: int, engine: Engine, reference: Reference
) -> None:
    data = TEXT.read_bytes()[:size].decode(errors="ignore").encode()
    found = evaluate_text(engine, data, STRIDE)
    plan = plan_text(engine, data, STRIDE)
    wanted = plan.bits + sum(bits_of_window(reference, plan.tokens, one) for one in plan.windows)
    assert found.windows == len(plan.windows) > 1
    assert abs(found.bits / wanted - 1) < 1e-3, (found.bits, wanted)
