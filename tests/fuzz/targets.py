"""All targets in Python, by name: opened in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.files import FILES
from tests.fuzz.http import HTTP
from tests.fuzz.sockets import SOCKETS
from tests.fuzz.target import Target

TARGETS: dict[str, Callable[[Path], Target]] = dict(sorted({**FILES, **SOCKETS, **HTTP}.items()))
MEMORY = Path("/dev/shm")


def memory() -> str | None:
    """A file system in memory, where there is one and TMPDIR names no other."""
    return str(MEMORY) if MEMORY.is_dir() and "TMPDIR" not in os.environ else None


@contextmanager
def opened(name: str) -> Iterator[Target]:
    """A target in a temporary folder, in memory where there is such a one."""
    with TemporaryDirectory(prefix="lora-fuzz-", dir=memory()) as folder:
        target = TARGETS[name](Path(folder))
        try:
            yield target
        finally:
            target.close()
