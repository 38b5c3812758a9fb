"""What a process holds after many recoveries of its boards.

`python -m tests.recovery_memory 10 200 1000` measures after these counts of recoveries, and prints
a JSON line for each."""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lora_host import abi
from lora_sdk import Engine, SamplingParams
from tests.recovery_rig import folders_at, inject, opened, write_folders

PROMPT = [(7 * i) % 250 + 3 for i in range(70)]
TOKENS = 180


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@dataclass(frozen=True)
class Held:
    """After `recoveries`. `resident`: KiB, `anonymous` ones of
    them not of files. `allocated`: bytes that the C library's malloc has given
    out; `blocks`: of the interpreter's own allocator."""

    recoveries: int
    resident: int
    anonymous: int
    descriptors: int
    threads: int
    allocated: int
    blocks: int


def _held(recoveries: int) -> Held:
    gc.collect()  # which also empties the interpreter's lists of free objects
    library = ctypes.CDLL(None)
    library.malloc_trim(0)  # pages of what was freed are no one's
    info = library.mallinfo2
    info.restype = _Mallinfo
    found = info()
    status = Path("/proc/self/status").read_text()
    sizes = dict(line.split(":") for line in status.splitlines())
    return Held(
        recoveries,
        int(sizes["VmRSS"].split()[0]),
        int(sizes["RssAnon"].split()[0]),
        len(list(Path("/proc/self/fd").iterdir())),
        len(list(Path("/proc/self/task").iterdir())),
        found.uordblks + found.hblkhd,
        sys.getallocatedblocks(),
    )


def _recover(engine: Engine, count: int) -> None:
    """A request, then one whose boards fail once."""
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
    engine.generate(PROMPT, params)
    engine.confirm()
    inject(engine, count % 2, abi.FAULT_DONE_LOST)
    engine.generate(PROMPT, params)
    gc.collect()  # so that what a busy moment takes does not depend on when garbage is found


def measured(root: Path, counts: Sequence[int]) -> Iterator[Held]:
    """What this process holds after so many recoveries of two boards. What fills once does so with
    the first requests: slots of K and V, modelled times, the sums of all weights (so `confirm`)."""
    logging.getLogger("lora_sdk.recovery").setLevel(logging.ERROR)
    with opened(folders_at(root), 2) as engine:
        for count in range(1, max(counts) + 1):
            _recover(engine, count)
            if count in counts:
                yield _held(count)
            elif count < min(counts):
                _held(count)  # what measuring itself takes once
        assert engine._recovery.count == max(counts)


def main(*counts: str) -> None:
    """Measure, in a folder of its own."""
    with tempfile.TemporaryDirectory() as root:
        write_folders(Path(root))
        for held in measured(Path(root), [int(count) for count in counts]):
            print(json.dumps(asdict(held)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
