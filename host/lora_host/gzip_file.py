"""Bounded decompression: deflate packs zeros a thousandfold, designs and firmware a few times."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

GZIP = b"\x1f\x8b"
LIMIT = 1 << 31  # max bytes of an unpacked container
FREE = 16 << 20  # unpacked, whatever the ratio
RATIO = 32
_CHUNK = 1 << 20


class GzipFault(ValueError):
    """Damaged gzip, or one that unpacks to more than the limit."""


def unpack(stream: BinaryIO, packed: int) -> Iterator[bytes]:
    """The content of a gzip stream of `packed` bytes, in chunks of at most 1 MiB. GzipFault."""
    limit, written = min(LIMIT, FREE + RATIO * packed), 0
    try:
        with gzip.GzipFile(fileobj=stream) as plain:
            while chunk := plain.read(_CHUNK):
                written += len(chunk)
                if written > limit:
                    raise GzipFault(f"{packed} B unpack to more than {limit} B; no container")
                yield chunk
    except (OSError, EOFError, zlib.error) as cause:
        raise GzipFault(f"damaged gzip: {cause}") from cause
