"""Batches and demos show texts on a terminal; JSON is for --json and pipes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands import LORA, RUN, command
from tests.processes import ROOT
from tests.terminal import on_terminal

FLEET = ("fleet", "examples/fleet_demo.yaml", "examples/prompts.jsonl", "-n", 8)


def test_a_batch_on_a_terminal_shows_texts(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text('"import os\\n"\n{"prompt": "def f(", "n": 2, "nothing": 1}\n"a"\n')
    arguments = ("--batch", lines, "-n", 4, "-q")
    screen = on_terminal(RUN, *arguments)
    found = [json.loads(line) for line in command(RUN, *arguments).stdout.splitlines()]
    shown = [line for line in screen.lines if line.startswith("--- line ")]
    assert [line.split(":")[0].split(",")[0] for line in shown] == [
        "--- line 1", "--- line 2", "--- line 3",
    ]  # fmt: skip
    assert shown[0] == "--- line 1: 4 new tokens, ended by length" and "error: " in shown[1]
    assert '"token_ids"' not in screen.text and found[0]["prompt"] in screen.text
    assert found[0]["outputs"][0]["text"].rstrip("\n") in screen.text
    asked = on_terminal(RUN, *arguments, "--json")
    again = [json.loads(line) for line in asked.lines if line.startswith("{")]
    assert [one["line"] for one in again] == [1, 2, 3]


def test_the_fleet_demo_shows_texts_and_its_table() -> None:
    screen = on_terminal(LORA, *FLEET)
    assert screen.status == 0 and screen.too_long() == []
    assert sum(line.startswith("--- line ") for line in screen.lines) == 7  # one has two outputs
    assert '"token_ids"' not in screen.text and "def add(a, b):" in screen.text
    place = next(i for i, line in enumerate(screen.lines) if line.startswith("place "))
    assert "cluster 1" in screen.lines[place + 3] and "measured: 6 requests" in screen.text
    make = (ROOT / "Makefile").read_text()
    assert f"lora {' '.join(map(str, FLEET[:3]))}\n" in make
