"""From a model to quantized boards by the commands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from lora_sdk import Engine
from lora_sdk.engine.evaluation import evaluate_text
from lora_sdk.model.config import load_config
from lora_sdk.model.demo import demo_model_path
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.text import calibration_path, read_text, windows_of
from lora_sdk.text.tokenizer import Tokenizer
from tests.commands import LORA, command, one_line_error
from tests.processes import ROOT
from tests.variants import variant, write_checkpoint

TEXT = "def one(two):\n    return three + 4\n"


def evaluate(folder: Path, text: Path, *more: object) -> dict[str, float]:
    done = command(LORA, "eval", "--model", folder, "--text", text, "--json", *more)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_quantize(model: Path, out: Path, *more: object) -> dict[str, object]:
    done = command(LORA, "quantize", model, out, "--json", *more)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("scheme", "more", "limit"),
    [("w8a8", (), 0.01), ("w4a8", ("--group", 32, "--zero-points"), 0.04)],
)
def test_boards_score_what_was_quantized(
    scheme: str, more: tuple[object, ...], limit: float, tmp_path: Path
) -> None:
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain", "x3")
    text = tmp_path / "text.txt"
    text.write_text(TEXT * 40)
    out = tmp_path / "out"
    arguments = ("--scheme", scheme, "--calibration", text, "--windows", 2, *more)
    run_quantize(plain, out, *arguments)
    (tmp_path / "short.txt").write_text(TEXT * 3)
    found = evaluate(out, tmp_path / "short.txt", "-c", 64, "--reference", plain, "--boards", 2)
    reference = found["reference_bits_per_byte"]
    assert found["bits_per_byte"] == pytest.approx(reference, rel=limit)
    assert found["bits_per_byte"] != reference
    if scheme == "w4a8":
        return
    alone = evaluate(plain, tmp_path / "short.txt", "-c", 64)
    assert alone["reference_bits_per_byte"] == pytest.approx(reference, rel=1e-6)
    assert alone["bits_per_byte"] == pytest.approx(reference, rel=1e-3)
    done = command(LORA, "quantize", out, tmp_path / "twice", "--scheme", "w8a8")
    one_line_error(done, "is quantized already")
    assert not (tmp_path / "twice").exists()


def on_boards(folder: Path, data: bytes, kv: Literal["fp16", "int8", "int8-heads"]) -> float:
    with Engine(folder, kv=kv, max_sequences=1) as engine:
        return evaluate_text(engine, data).bits_per_byte


@pytest.mark.slow
def test_the_demo_model_loses_little(tmp_path: Path) -> None:
    demo = demo_model_path()
    data = (ROOT / "tests" / "data" / "heldout.txt").read_bytes()[:8000]
    config = load_config(demo)
    tokenizer = Tokenizer(demo, config.vocabulary)
    windows, _ = windows_of(read_text(calibration_path()), tokenizer, config, 16)
    floats = on_boards(demo, data, "fp16")
    quantize(demo, tmp_path / "eight", Recipe("w8a8"), windows)
    half = on_boards(tmp_path / "eight", data, "fp16")
    assert half / floats < 1.01  # static scales, one a tensor
    assert on_boards(tmp_path / "eight", data, "int8") / half < 1.005
    assert on_boards(tmp_path / "eight", data, "int8-heads") / half < 1.005
    quantize(demo, tmp_path / "four", Recipe("w4a8"), windows)
    assert on_boards(tmp_path / "four", data, "int8") / floats < 1.04
