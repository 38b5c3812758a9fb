"""Decompresses gzip'd containers, which vendors may deliver. The C library reads plain ones."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import OverlayError

GZIP = b"\x1f\x8b"
LIMIT = 1 << 31  # max bytes of an unpacked container
_CHUNK = 1 << 20


@contextmanager
def unpacked(container: Path | None) -> Iterator[Path | None]:
    """A plain file with the container's content: the file itself, or a copy that is deleted on
    exit. OverlayError for damaged gzip. An unreadable file is yielded as it is: its reader reports
    the error."""
    if container is None or not _is_packed(container):
        yield container
        return
    with tempfile.NamedTemporaryFile(prefix="lora-container-", suffix=container.suffix) as plain:
        written = 0
        try:
            with gzip.open(container) as stream:
                while chunk := stream.read(_CHUNK):
                    written += len(chunk)
                    if written > LIMIT:
                        raise OverlayError(f"{container}: unpacks to more than {LIMIT} B")
                    plain.write(chunk)
        except (OSError, EOFError) as cause:
            raise OverlayError(f"{container}: damaged gzip: {cause}") from cause
        plain.flush()
        yield Path(plain.name)


def _is_packed(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(GZIP)) == GZIP
    except OSError:
        return False
