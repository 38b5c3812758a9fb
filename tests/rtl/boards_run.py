"""A process whose emulated boards have simulated controls: runs the request that its argument is,
and prints what was seen."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import asdict

from tests.rtl import simulated_boards  # noqa: F401  (first: it replaces lora_host's module)
from tests.rtl.generations import from_text, run


def cycles() -> int:
    """Of all simulated controls so far."""
    function = ctypes.CDLL(os.environ["LORA_TEST_MODULE"]).simulated_cycles
    function.restype = ctypes.c_uint64
    return int(function())


if __name__ == "__main__":
    found = asdict(run(from_text(json.loads(sys.argv[1]))))
    print(json.dumps({"seen": found, "cycles": cycles()}))
