"""Errors of writing that name the file: Python names one that cannot be opened, and none that the
disk has no room for."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # on the disk, or of what a user may have there
_CONTENT = (*NO_ROOM, errno.EFBIG)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """OSErrors of what is written inside name `path`; of a copy too, where Python names the file
    that is read."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno in _CONTENT:
            error.filename = os.fspath(path)
        raise
