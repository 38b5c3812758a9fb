"""How fast the demo model must be on a machine with two cores. Wall clock, so not among the quick
tests: other work on the machine counts."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import RUN, lora_run
from tests.processes import environment

PROMPT = "def add(a, b):\n    return a + b\n\n" * 4  # at most 64 tokens


def seconds_to_first_text(prompt: Path) -> float:
    """From the start of `lora-run --boards 4` to the first character on stdout."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "--boards", "4", "-n", "16", str(prompt)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    elapsed = time.monotonic() - began
    counts = re.search(rb"(\d+) prompt and 16 new tokens", process.communicate(timeout=60)[1])
    assert counts and 50 <= int(counts[1]) <= 64
    return elapsed


@pytest.mark.slow
def test_the_first_token_comes_within_three_seconds(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT)
    assert statistics.median(seconds_to_first_text(prompt) for _ in range(5)) <= 3


@pytest.mark.slow
def test_the_numpy_kernels_write_five_tokens_a_second() -> None:
    done = lora_run(
        "--boards", 4, "--kernels", "numpy", "-n", 50, "--ignore-eos", "-p", "import os"
    )
    speed = re.search(rb"\(([\d.]+) new tokens/s\)", done.stderr)
    assert speed and float(speed[1]) >= 5, done.stderr
