"""A process whose emulated boards have simulated controls, or are simulated cards: runs the request
that its argument is, and prints what was seen."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import asdict
from itertools import product

from tests.rtl import simulated_boards  # noqa: F401  (first: it replaces lora_host's module)
from tests.rtl.generations import from_text, run

KINDS = (1, 3)  # of frames, enum lora_frame_kind: data, test


def module() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["LORA_TEST_MODULE"])


def cycles() -> int:
    """Of all simulated controls so far; emulated boards as they are have none."""
    library = module()
    if not hasattr(library, "simulated_cycles"):
        return 0
    function = library.simulated_cycles
    function.restype = ctypes.c_uint64
    return int(function())


def frames(boards: int) -> list[tuple[int, ...]]:
    """Frames that were sent, where they are traced: board, port, the board where they began, kind,
    count, CRC-32 of all in order."""
    library, crc, found = module(), ctypes.c_uint32(), list[tuple[int, ...]]()
    if not hasattr(library, "frames_sent"):
        return found
    for at in product(range(boards), range(2), range(boards), KINDS):
        if count := library.frames_sent(*at, ctypes.byref(crc)):
            found.append((*at, count, crc.value))
    return found


if __name__ == "__main__":
    if "LORA_TEST_CARDS" in os.environ:
        from tests.rtl import simulated_cards  # noqa: F401
    if "LORA_TEST_UNNUMBERED" in os.environ:
        from tests.rtl import unnumbered_boards  # noqa: F401
    request = from_text(json.loads(sys.argv[1]))
    found = asdict(run(request))
    print(json.dumps({"seen": found, "cycles": cycles(), "frames": frames(request.boards)}))
