"""Engine(kernels="rtl") and lora-run --kernels rtl: the tokens of the native kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import rtl
from lora_sdk import Engine, SamplingParams, demo_model_path
from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from tests.adapter_folders import Folder, write_adapter
from tests.calibrated import random_windows
from tests.commands import lora_run
from tests.variants import variant, write_checkpoint

pytestmark = pytest.mark.rtl

GREEDY = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True)
PROMPT = "def main"


def tokens(kernels: str, model: Path | None = None) -> list[int]:
    with Engine(model, kernels=kernels, boards=1, speculation=None) as engine:
        return list(engine.generate([PROMPT], GREEDY)[0].token_ids)


def test_sixteen_greedy_tokens_of_the_demo_model() -> None:
    wanted = tokens("native")
    before = rtl.simulated_work()
    assert tokens("rtl") == wanted
    assert len(wanted) == 16
    after = rtl.simulated_work()
    assert after.simulated - before.simulated >= 16 * 33  # 8 layers of 4 matmuls, and lm_head
    assert after.matrix == before.matrix
    assert after.vectors - before.vectors >= 16 * 8 * 5  # norms, residuals and activations
    assert after.attentions - before.attentions == 16 * 8
    assert after.vector == before.vector and after.attention == before.attention


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_the_same_of_the_demo_model_quantized(scheme: str, tmp_path: Path) -> None:
    plain = demo_model_path()
    windows = random_windows(load_config(plain).vocabulary, count=2)
    quantize(plain, tmp_path / "model", Recipe(scheme), windows)  # type: ignore[arg-type]
    wanted = tokens("native", tmp_path / "model")
    before = rtl.simulated_work()
    assert tokens("rtl", tmp_path / "model") == wanted
    after = rtl.simulated_work()
    assert after.simulated - before.simulated >= 16 * 33
    assert after.matrix == before.matrix


def test_stats_say_what_was_simulated() -> None:
    done = lora_run("--kernels", "rtl", "--stats", "-n", 1, "-p", "x")
    assert done.returncode == 0, done.stderr
    text = done.stderr.decode()
    assert "rtl kernels" in text
    line = next(line for line in text.splitlines() if line.startswith("simulated: "))
    assert line.endswith("native: 0 matmuls, 0 vector, 0 attention, 0 adapter calls")
    simulated, kernels = text[text.index(line) :].splitlines()[1:3]
    assert simulated.startswith("in simulated hardware: matmul FP16 33, ")
    for name in (
        "attention FP16 8",
        "embed 1",
        "rms_sums 17",
        "rms_apply 17",
        "rope 8",
        "residual 16",
    ):
        assert f", {name}" in simulated
    assert kernels == "in native kernels: none"


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [0, 4])
def test_an_adapter(blocks: int, tmp_path: Path) -> None:
    """Plain and block-diagonal: the same text, and nothing in native kernels."""
    model = variant("llama_narrow")
    write_checkpoint(model, tmp_path / "model")
    write_adapter(model, Folder("a", rank=12, blocks=blocks), tmp_path / "a")
    shared = ("--model", tmp_path / "model", "--boards", 2, "-n", 6, "-p", "once", "--stats",
              "--adapter", f"a={tmp_path / 'a'}")  # fmt: skip
    wanted, done = lora_run(*shared), lora_run(*shared, "--kernels", "rtl")
    assert done.returncode == 0, done.stderr
    assert done.stdout == wanted.stdout and done.stdout
    text = done.stderr.decode()
    assert "native: 0 matmuls, 0 vector, 0 attention, 0 adapter calls" in text
    assert "in native kernels: none" in text and ", adapter " in text
