"""This computer in a few words: measured tables of other computers are told apart by them."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


@cache
def this_machine() -> str:
    """This computer in a few words, by which measured tables are told apart."""
    return f"{_processor()}, {os.cpu_count()} CPUs"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
