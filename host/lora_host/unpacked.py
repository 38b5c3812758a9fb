"""Decompresses gzip'd containers, which vendors may deliver. The C library reads plain ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import OverlayError
from .gzip_file import GZIP, GzipFault, unpack
from .regular_file import open_regular


@contextmanager
def unpacked(container: Path | None) -> Iterator[Path | None]:
    """A plain file with the container's content: the file itself, or a copy that is deleted on
    exit. OverlayError for damaged gzip. An unreadable file is yielded as it is: its reader reports
    the error."""
    if container is None or not _is_packed(container):
        yield container
        return
    with tempfile.NamedTemporaryFile(prefix="lora-container-", suffix=container.suffix) as plain:
        try:
            with open_regular(container) as stream:
                for chunk in unpack(stream, os.fstat(stream.fileno()).st_size):
                    plain.write(chunk)
        except (OSError, GzipFault) as cause:
            raise OverlayError(f"{container}: {cause}") from cause
        plain.flush()
        yield Path(plain.name)


def _is_packed(path: Path) -> bool:
    try:
        with open_regular(path) as stream:
            return stream.read(len(GZIP)) == GZIP
    except OSError:
        return False
