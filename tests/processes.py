"""The environment of a process that a test starts: it imports the packages that the test imported,
installed ones or a checkout's, wherever it runs."""

from __future__ import annotations

import os
from pathlib import Path

import lora_host
import lora_sdk

ROOT = Path(__file__).resolve().parents[1]


def environment() -> dict[str, str]:
    """The test's own, with the folders of lora_sdk, lora_host and tests on the path."""
    folders = [Path(str(module.__file__)).resolve().parents[1] for module in (lora_sdk, lora_host)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*folders, ROOT]))}
