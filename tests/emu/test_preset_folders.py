"""Folders of llm-compressor's presets on boards: the same bytes as the oracle on what they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_sdk.model.checkpoint import Checkpoint
from tests.commands import LORA, command
from tests.drive import Driver, open_runner
from tests.preset_folders import PRESETS, write_preset
from tests.quantized import oracle_of

TOKENS = [(7 * i * i + 3 * i) % 300 for i in range(40)]


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("name", PRESETS)
def test_boards_equal_the_oracle(name: str, boards: int, tmp_path: Path) -> None:
    path = write_preset("llama_linear", PRESETS[name], tmp_path, kv=name == "fp8")
    with open_runner(path, boards, sequences=1) as runner:
        got = Driver(runner).feed(0, TOKENS, (33, 1, 6))
    assert got.tobytes() == oracle_of(Checkpoint.open(path)).logits(TOKENS).tobytes()


def test_the_plan_counts_what_boards_hold(tmp_path: Path) -> None:
    path = write_preset("llama_linear", PRESETS["fp8"], tmp_path, kv=True)
    found = json.loads(command(LORA, "plan", "--model", path, "--json").stdout)
    plain = json.loads(command(LORA, "plan", "--model", tmp_path / "plain", "--json").stdout)
    assert found["weight_bytes"] == plain["weight_bytes"]
    assert found["overlay"] == "lora_f_u280"
