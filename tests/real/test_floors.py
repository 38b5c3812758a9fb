"""What 8 and 4 bits cost trained models, in bits per byte of English that calibration has not seen:
floors of docs/quantization.md. SmolLM2 and Gemma come in 4 bits, so theirs is requantization; the
demo model is stored in FP16."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from lora_sdk import Engine
from lora_sdk.engine.evaluation import evaluate_text
from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import recommended
from lora_sdk.quant.text import calibration_path, windows_of
from lora_sdk.text.tokenizer import Tokenizer
from tests.real.conftest import FULL

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
WINDOWS, HELD, ON_BOARDS = 8, 3, 3000


@dataclass(frozen=True)
class Floor:
    """A format, and the most that it may add to bits per byte."""

    scheme: str
    group: int
    most: float


EIGHT = Floor("w8a8", 128, 0.009)
FOUR = Floor("w4a16", 64, 0.04)
BOTH = Floor("w4a8", 64, 0.05)
WIDE = Floor("w4a8", 128, 0.05)  # the wide card's
CASES = (
    ("gemma", EIGHT), ("gemma", WIDE), ("gemma", FOUR), ("gemma", BOTH),
    ("smollm2", EIGHT), ("smollm2", FOUR), ("smollm2", BOTH),  # groups of 128 do not divide 576
    ("demo", EIGHT), ("demo", FOUR), ("demo", BOTH), ("demo", WIDE),
)  # fmt: skip
LONGER = (("gemma", FOUR), ("gemma", BOTH))


def case(model: str, floor: Floor) -> object:
    """With its name and mark."""
    marks = [FULL] if (model, floor) in LONGER else []
    return pytest.param(model, floor, marks=marks, id=f"{model}-{floor.scheme}-{floor.group}")


@pytest.mark.parametrize(("model", "floor"), [case(*one) for one in CASES])
def test_a_format_costs_less_than_its_floor(
    model: str, floor: Floor, files: dict[str, Path], tmp_path: Path
) -> None:
    path = ROOT / "models" / "demo" if model == "demo" else files[model]
    config = load_config(path)
    tokenizer = Tokenizer(path, config.vocabulary)
    windows, held = windows_of(calibration_path().read_text(), tokenizer, config, WINDOWS)
    recipe = recommended(floor.scheme, config, floor.group)
    report = quantize(path, tmp_path / "out", recipe, windows, held_out=held[:HELD])
    before, after = report.bits
    assert after / before - 1 < floor.most
    if model == "smollm2" and floor is BOTH:
        assert recommended(WIDE.scheme, config, WIDE.group) == recipe
    if (model, floor) == ("demo", BOTH):
        data = calibration_path().read_bytes()[-ON_BOARDS:]
        found = []
        for folder in (path, tmp_path / "out"):
            with Engine(model=folder, context=1024) as engine:
                found.append(evaluate_text(engine, data).bits)
        assert found[1] / found[0] - 1 < floor.most
