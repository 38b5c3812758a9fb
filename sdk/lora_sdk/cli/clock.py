"""Run time of this program, including its start by the system."""

from __future__ import annotations

import os
import time

_IMPORTED = time.monotonic()


def since_start() -> float:
    """Seconds since the process was started, or since this import if the system does not say."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED
