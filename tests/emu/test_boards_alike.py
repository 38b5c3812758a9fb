"""Boards differ in banks and shells, not in what they compute."""

from __future__ import annotations

import pytest

from lora_host.boards import board_names
from lora_sdk import Engine, SamplingParams

PROMPT = "import os\n\ndef read_file(path):"


def tokens(board: str, boards: int) -> tuple[int, ...]:
    with Engine(devices=[f"emu:{board}"] * boards) as engine:
        assert engine.plan.overlay.name == f"lora_f_{board}"
        (output,) = engine.generate(PROMPT, SamplingParams(max_tokens=24)).outputs
    return tuple(output.token_ids)


@pytest.mark.parametrize("boards", [1, 2, 4])
def test_every_board_generates_the_same_tokens(boards: int) -> None:
    found = {name: tokens(name, boards) for name in board_names()}
    assert len(found) == 3 and len(set(found.values())) == 1
    assert len(found["u280"]) == 24
