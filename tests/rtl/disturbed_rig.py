"""Commands of simulated units behind others that were begun and ended
(csrc/rtl/disturbed_run.hpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

STATES = 64
_NAMES = (
    "commands", "attempts", "foreign", "announces", "aborts", "aborts_announced",
    "aborts_with_reads", "aborts_with_read_left", "aborts_with_write_left", "resets",
    "resets_with_reads", "late", "power_ups", "states_at_power_up",
)  # fmt: skip
UNITS = ("fp16", "int8", "vfu", "attention", "adapter")  # enum lora_rtl_unit


class _Disturbed(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in _NAMES),
        ("aborts_in", ctypes.c_uint64 * STATES),
    ]


@dataclass
class Counts:
    """What was done to one unit's commands meanwhile, by the names of csrc/rtl/rtl.hpp, and how
    many aborts met each state."""

    found: dict[str, int] = field(default_factory=dict)
    aborts_in: list[int] = field(default_factory=list)
    error: str = ""

    def missing(self, least: int, states: int) -> list[int]:
        """States that fewer aborts met."""
        return [s for s in range(states) if self.aborts_in[s] < least]


def _read(units: Any, unit: str) -> _Disturbed:
    counts = _Disturbed()
    units.lora_rtl_read_disturbed(UNITS.index(unit), ctypes.byref(counts))
    return counts


@contextmanager
def disturbed(units: Any, unit: str, attempts: int, seed: int = 1) -> Iterator[Counts]:
    """Each command of the library's units runs behind `attempts` others. The counts are there at
    the end."""
    units.lora_rtl_disturb_error.restype = ctypes.c_char_p
    before, counts = _read(units, unit), Counts()
    units.lora_rtl_disturb(seed, attempts)
    try:
        yield counts
    finally:
        counts.error = units.lora_rtl_disturb_error().decode()
        units.lora_rtl_disturb(0, 0)
    after = _read(units, unit)
    counts.found = {name: getattr(after, name) - getattr(before, name) for name in _NAMES}
    counts.found["states_at_power_up"] = after.states_at_power_up
    counts.aborts_in = [after.aborts_in[s] - before.aborts_in[s] for s in range(STATES)]
