"""Calls of native code without the reports that Rust's panics write to standard error. The
exception says the same, and an error is one line."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_REPORT = re.compile(rb"\n?thread '[^\n]*panicked at ")
_ONE = Lock()  # two at once would restore each other's file


@contextmanager
def without_panic_reports() -> Iterator[None]:
    """Standard error of the whole process is held back meanwhile, so the call should be short.
    Other text is passed on at the end, but for what follows a report."""
    with _ONE, tempfile.TemporaryFile() as held:
        try:
            real = os.dup(2)
        except OSError:  # it is closed
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(real, 2)
            os.close(real)
            held.seek(0)
            rest = memoryview(_REPORT.split(held.read(), maxsplit=1)[0])
            while rest:
                rest = rest[os.write(2, rest) :]
