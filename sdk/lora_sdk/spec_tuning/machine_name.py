"""A short description of this computer, to distinguish measured tables of different computers."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


@cache
def this_machine() -> str:
    """A short description of this computer: processor and number of CPUs."""
    return f"{_processor()}, {os.cpu_count()} CPUs"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
