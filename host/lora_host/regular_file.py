"""Bounded reads of regular files. A path from a user may name a FIFO, a device, or a file that
grows while it is read: its size is counted, not taken from stat."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_LEAST = 1 << 16
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


def names_no_file(error: OSError) -> bool:
    """Whether the name is wrong, and not the file: there is none of that name, nor can be, or it
    is a folder's."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR)


def read_regular(path: Path, limit: int) -> bytes:
    """The file's bytes, at most `limit`. OSError as `open_regular`, and for a longer file."""
    with open_regular(path) as file:
        data = _bytes(file, limit + 1)
    if len(data) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} B"
        raise OSError(errno.EFBIG, f"is larger than the limit of {size}", str(path))
    return data


def _bytes(file: BinaryIO, limit: int) -> bytes:
    """At most `limit` bytes. What is asked for at once takes its memory even if it is not there, so
    that is the file's size; one that grows, or says 0 as those of /proc, is read on."""
    once = max(os.fstat(file.fileno()).st_size + 1, _LEAST)
    data = file.read(min(once, limit))
    parts, left = [data], limit - len(data)
    while len(data) >= once and left and (more := file.read(min(_LEAST, left))):
        parts.append(more)
        left -= len(more)
    return b"".join(parts)


def _check(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        found = next((name for test, name in _KINDS if test(mode)), "no regular file")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"is {found}; expected a regular file", str(path))
