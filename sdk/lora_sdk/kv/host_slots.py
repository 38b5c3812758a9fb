"""Room for pages of the KV cache outside the boards: the host's memory, or a nameless file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol


class Slots(Protocol):
    """Pages by number from 0 to `count` - 1. OSError if the host cannot store or give one."""

    count: int

    def put(self, slot: int, data: bytes) -> None:
        """Store a page."""

    def get(self, slot: int) -> bytes:
        """The bytes of a page that was stored."""

    def close(self) -> None:
        """Give the room back."""


class MemorySlots:
    """Slots in memory, taken as they are filled."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._data: dict[int, bytes] = {}

    def put(self, slot: int, data: bytes) -> None:
        """See Slots."""
        self._data[slot] = data

    def get(self, slot: int) -> bytes:
        """See Slots."""
        return self._data[slot]

    def close(self) -> None:
        """See Slots."""
        self._data.clear()


class FileSlots:
    """Slots in a file of `folder` that has no name, so that nothing is left if the program ends."""

    def __init__(self, count: int, folder: Path, slot_bytes: int) -> None:
        """OSError if the folder takes no file."""
        self.count = count
        self._slot_bytes = slot_bytes
        self._sizes: dict[int, int] = {}
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see close

    def put(self, slot: int, data: bytes) -> None:
        """See Slots."""
        start, left = slot * self._slot_bytes, memoryview(data)
        self._sizes[slot] = len(data)
        while left:
            written = os.pwrite(self._file.fileno(), left, start)
            start, left = start + written, left[written:]

    def get(self, slot: int) -> bytes:
        """See Slots."""
        size = self._sizes[slot]
        parts, start = [], slot * self._slot_bytes
        while size:
            part = os.pread(self._file.fileno(), size, start)
            if not part:
                raise OSError(f"the file of KV pages ends at {start} B; {size} more were stored")
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return b"".join(parts)

    def close(self) -> None:
        """See Slots."""
        self._file.close()
