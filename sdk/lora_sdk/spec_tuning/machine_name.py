"""A short description of this computer, to distinguish measured tables of different computers."""

from __future__ import annotations

import os
from functools import cache

from lora_sdk.bench.machine import processor


@cache
def this_machine() -> str:
    """A short description of this computer: processor and number of CPUs."""
    return f"{processor()}, {os.cpu_count()} CPUs"
