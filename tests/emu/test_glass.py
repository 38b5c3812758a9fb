"""GlassLM's two trained models beside the package's own NumPy code: tokens, texts, bits per byte,
and what 8 bits cost them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import glassllm
import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk import Engine
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import recommended
from lora_sdk.quant.text import calibration_path, windows_of
from tests.glass import CONTEXT, write_glass

PROMPTS = (
    "Alice was beginning to", "The Queen", "`Curiouser", "Off with", "Capitu olhou", "Era uma vez",
    "  two  spaces", "A\nB", "O senhor", "said the", "It was", "x", "1, 2, 3", "Why?", "(", "a a a",
    "Bentinho", "the Mock Turtle", "Down, down", "no fim",
)  # fmt: skip
TEXTS = (
    "", "   ", "\n\n a\n ", "e\u0301 \u00e9", "Voc\u00ea n\u00e3o", "\U0001f600 x", "<bos><eos>",
    "\u2581a", "\t\r\x00", "a" * 90, "1,234.5 \u2014 \u201cquoted\u201d",
)  # fmt: skip
NEW, MARGIN = 24, 0.02
FLOOR_W8A8 = 0.009


@dataclass
class Glass:
    """The package's model and tokenizer, and the folder that was made of them."""

    model: Any
    tokenizer: Any
    folder: Path

    def logits(self, tokens: list[int]) -> NDArray[np.float32]:
        """FP32 [tokens, vocabulary]."""
        found: NDArray[np.float32] = self.model(tokens).data[0]
        return found


@pytest.fixture(scope="module", params=["en", "pt"])
def glass(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Glass:
    folder = tmp_path_factory.mktemp("glass") / request.param
    own = glassllm.load_pretrained(request.param)
    return Glass(*own, write_glass(Path(glassllm.__file__).parent, request.param, folder))


@pytest.fixture(scope="module", params=[1, 2, 4])
def boards(request: pytest.FixtureRequest, glass: Glass) -> Iterator[Engine]:
    with Engine(model=glass.folder, boards=request.param, context=CONTEXT) as opened:
        yield opened


def test_greedy_texts_are_the_packages(glass: Glass, boards: Engine) -> None:
    found = boards.generate(list(PROMPTS), max_tokens=NEW, ignore_eos=True)
    others = 0
    for prompt, one in zip(PROMPTS, found, strict=True):
        prefix, tokens = glass.tokenizer.encode(prompt), list(one.outputs[0].token_ids)
        logits = glass.logits([*prefix, *tokens])[len(prefix) - 1 : -1]
        gaps = logits.max(axis=1) - logits[np.arange(NEW), tokens]
        assert gaps.max() < MARGIN, (prompt, gaps)
        others += int((gaps > 0).sum())
    assert others <= len(PROMPTS) * NEW // 50


def bits(logits: NDArray[np.float32], tokens: list[int]) -> float:
    """Bits of all tokens but the first."""
    wide = logits[:-1].astype(np.float64)
    sums = np.log(np.exp(wide).sum(axis=1))
    return float((sums - wide[np.arange(len(wide)), tokens[1:]]).sum() / np.log(2))


def text() -> str:
    """The end of a novel."""
    return calibration_path().read_text()[-6000:]


def test_bits_per_byte_are_the_packages(glass: Glass, boards: Engine) -> None:
    tokens = glass.tokenizer.encode(text())
    wanted = found = 0.0
    for start in range(0, len(tokens) - CONTEXT, CONTEXT):
        window = tokens[start : start + CONTEXT]
        wanted += bits(glass.logits(window), window)
        sequence = boards.open_sequence()
        halves = []
        for some in (window[: CONTEXT // 2], window[CONTEXT // 2 :]):
            rows = boards.rows(sequence, some, logits=range(len(some)))
            halves.append(boards.step(rows).logits)
            boards.commit(sequence, [row.slot for row in rows])
        found += bits(np.concatenate(halves), window)
        boards.release(sequence)
    assert abs(found / wanted - 1) < 1e-3


def test_tokens_are_the_packages(glass: Glass) -> None:
    with Engine(model=glass.folder, context=CONTEXT) as engine:
        for one in (*TEXTS, *PROMPTS, text()):
            wanted = glass.tokenizer.encode(one)
            assert engine.tokenizer.encode(one, special=False) == wanted, one
            known = glass.tokenizer.decode(wanted)
            if "\u2047" not in known:
                assert engine.tokenizer.decode(wanted, skip_special=False) == known


def test_eight_bits_cost_less_than_the_floor(glass: Glass, tmp_path: Path) -> None:
    with Engine(model=glass.folder, context=CONTEXT) as engine:
        config = engine.config
        windows, held = windows_of(
            calibration_path().read_text(), engine.tokenizer, config, count=64
        )
    recipe = recommended("w8a8", config)
    report = quantize(glass.folder, tmp_path / "out", recipe, windows, held_out=held)
    assert report.bits[1] / report.bits[0] - 1 < FLOOR_W8A8
