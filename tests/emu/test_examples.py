"""The examples run as they stand, on the demo model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = environment()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, env=ENVIRONMENT, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout and not done.stderr
