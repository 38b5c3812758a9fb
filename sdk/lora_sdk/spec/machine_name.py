"""A short description of this computer, to distinguish measured tables of different computers."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


@cache
def this_machine() -> str:
    """A short description of this computer: processor and number of CPUs."""
    return f"{processor()}, {os.cpu_count()} CPUs"


def processor() -> str:
    """The processor's name."""
    return cpu_fields().get("model name", platform.machine())


def cpu_fields() -> dict[str, str]:
    """Of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
