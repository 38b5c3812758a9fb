"""What opening a trained model's file costs. Seconds differ from machine to machine, and calls of
Python do not: a vocabulary of 262,144 tokens is read without one for each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
SCRIPT = """
import sys, time
begun = time.process_time()
from pathlib import Path
from lora_sdk import Engine
counts = [0]
def count(frame, event, argument):
    counts[0] += event in ("call", "c_call")
def counted(make):
    counts[0] = 0
    sys.setprofile(count)
    made = make()
    sys.setprofile(None)
    return made, counts[0]
engine, opening = counted(lambda: Engine(model=Path(sys.argv[1]), boards=1))
tokenizer, reading = counted(lambda: engine.tokenizer)
print(opening, reading, time.process_time() - begun)
engine.close()
"""
CALLS = {"gemma": (400_000, 60_000), "smollm2": (400_000, 150_000)}
"""Of the engine, then of the tokenizer."""


@pytest.mark.parametrize("name", CALLS)
def test_opening_makes_no_call_for_each_token(name: str, files: dict[str, Path]) -> None:
    command = [sys.executable, "-c", SCRIPT, str(files[name])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    opening, reading, _ = done.stdout.split()
    most = CALLS[name]
    assert int(opening) < most[0] and int(reading) < most[1], done.stdout
