"""Bounded reads of regular files. A path from a user may name a FIFO, a device, or a file that
grows while it is read: its size is counted, not taken from stat."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """The file, opened for reading. OSError, whose strerror says what was found, if it cannot be
    opened or is no regular file."""
    try:
        _check(path, os.stat(path).st_mode)  # first: opening a device may have effects
        # O_NONBLOCK: a FIFO that replaces the file now has no writer to wait for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as cause:  # a NUL in the path
        raise OSError(errno.EINVAL, str(cause), str(path)) from None
    try:
        _check(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """The file's bytes, at most `limit`. OSError as `open_regular`, and for a longer file."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} B"
        raise OSError(errno.EFBIG, f"is larger than the limit of {size}", str(path))
    return data


def _check(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        found = next((name for test, name in _KINDS if test(mode)), "no regular file")
        raise OSError(errno.EINVAL, f"is {found}; expected a regular file", str(path))
