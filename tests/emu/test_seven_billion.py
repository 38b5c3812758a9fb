"""A model of LLaMA2-7B's shape writes text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import LORA, command, lora_run
from tests.processes import ROOT

NEW = 16
GB = 10**9


def output_of(model: Path, boards: int) -> dict[str, Any]:
    """Text, tokens and log probabilities of `NEW` greedy tokens, by the command."""
    done = lora_run(
        "--model", model, "--boards", boards, "-n", NEW, "--temp", 0, "--json", "--logprobs", 2,
        ROOT / "examples" / "prompt.txt", timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert f"; {boards} emulated board" in done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["usage"]["completion_tokens"] == NEW
    (output,) = result["outputs"]
    found: dict[str, Any] = output
    return found


@pytest.mark.slow
def test_four_boards_write_the_text_of_one(large_folder: Callable[[int, int], Path]) -> None:
    """4-bit weights of 32 layers: 3.7 GB on the disk and once more on the boards. A random model's
    text is poor, so the log probabilities are compared too: a wrong MB of weights changes them."""
    model = large_folder(6 * GB, 5 * GB) / "model"
    made = command(LORA, "lab", "synth", "llama2-7b", model, "--scheme", "w4a8", timeout=400)
    assert made.returncode == 0, made.stderr.decode()
    four = output_of(model, 4)
    assert four["text"].strip() and len(four["token_ids"]) == len(four["logprobs"]) == NEW
    assert output_of(model, 1) == four
