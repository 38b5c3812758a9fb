"""From a model to quantized boards by the commands alone."""

from __future__ import annotations

import json
import subprocess
import sys
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
from tests.processes import ROOT, environment
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
    [
        ("w8a8", (), 0.01),
        ("w8a8", ("--rotate",), 0.01),
        ("w4a8", ("--group", 32, "--zero-points"), 0.04),
    ],
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
    if more:
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


def started_on_demo(out: Path) -> subprocess.Popen[str]:
    words = ["quantize", demo_model_path(), out, "--scheme", "w8a8", "--windows", "2", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", LORA, *map(str, words)], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_elsewhere_than_on_a_terminal_progress_is_a_line_for_each_layer(tmp_path: Path) -> None:
    with started_on_demo(tmp_path / "out") as started:
        said, err = started.communicate(timeout=120)
    assert started.returncode == 0 and json.loads(said)["scheme"] == "w8a8"
    steps = json.loads((demo_model_path() / "config.json").read_text())["num_hidden_layers"] + 1
    expected = [f"quantizing layers and lm_head: {done} of {steps}" for done in range(steps + 1)]
    assert err.splitlines() == expected


def test_sigterm_leaves_no_folder_behind(tmp_path: Path) -> None:
    with started_on_demo(tmp_path / "out") as started:
        assert started.stderr is not None
        while not started.stderr.readline().startswith("quantizing layers and lm_head: 1 of"):
            assert started.poll() is None
        assert [path.name.startswith(".out.") for path in tmp_path.iterdir()] == [True]
        started.terminate()
        assert "Traceback" not in started.communicate(timeout=60)[1]
    assert started.returncode == 130 and list(tmp_path.iterdir()) == []
