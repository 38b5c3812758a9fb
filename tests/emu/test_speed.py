"""How fast the demo model must be, beside other work of the same machine at the same time."""

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


def seconds_to_import() -> float:
    """A new interpreter with the libraries that any such program loads."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import numpy, tokenizers, cffi, click"], check=True)
    return time.monotonic() - began


def seconds_of_tokens(count: int) -> float:
    """Of so many new tokens with NumPy kernels, without the start of the program."""
    done = lora_run(
        "--boards", 4, "--kernels", "numpy", "-n", count, "--ignore-eos", "-p", "import os"
    )
    speed = re.search(rb"\(([\d.]+) new tokens/s\)", done.stderr)
    assert speed, done.stderr
    return count / float(speed[1])


@pytest.mark.slow
def test_the_first_token_comes_soon_after_the_imports(tmp_path: Path) -> None:
    """A second where the imports take a quarter."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT)
    pairs = [(seconds_to_first_text(prompt), seconds_to_import()) for _ in range(5)]
    ratios = [first / base for first, base in pairs]
    assert statistics.median(ratios) < 15, ratios


@pytest.mark.slow
def test_the_numpy_kernels_are_usable() -> None:
    """A token takes no longer than four times the imports; on an idle machine less than once. A
    loop over elements would take hundreds of times as long."""
    pairs = [(seconds_of_tokens(8) / 8, seconds_to_import()) for _ in range(5)]
    ratios = [token / base for token, base in pairs]
    assert statistics.median(ratios) < 4, ratios
