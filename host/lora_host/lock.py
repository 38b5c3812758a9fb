"""Locks boards: one process uses a board at a time. The kernel releases the lock when the process
ends in any way, so there are no stale locks. The file contains the holder's process id."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from .device_uri import canonical
from .errors import TransportError

_NAME_CHARACTERS = 80
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_TRIES, _PAUSE_S = 5, 0.02  # `holder` takes the lock for microseconds


def lock_folder() -> Path:
    """Folder of the lock files, for all users: LORA_LOCK_FOLDER, or /run/lock, or the temporary
    folder."""
    named = os.environ.get("LORA_LOCK_FOLDER")
    if named:
        return Path(named)
    shared = Path("/run/lock")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def lock_path(uri: str) -> Path:
    """The lock file of a board. Its name has letters, digits, dots, underscores and hyphens; what
    else a URI has is told apart by a digest."""
    name = canonical(uri)
    plain = name.replace(":", "-")
    if len(plain) > _NAME_CHARACTERS or not _PLAIN.fullmatch(plain):
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
        plain = f"{_OTHER.sub('_', plain)[:_NAME_CHARACTERS]}-{digest}"
    return lock_folder() / f"lora-fpga-{plain}.lock"


def _open(uri: str) -> IO[str]:
    path = lock_path(uri)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o666)
    except OSError as cause:
        raise TransportError(
            f"{uri}: its lock {path} cannot be opened: {cause.strerror}; name another folder in "
            "LORA_LOCK_FOLDER"
        ) from cause
    return os.fdopen(fd, "r+")


def _holder_of(file: IO[str]) -> int | None:
    file.seek(0)
    text = file.read(32).strip()
    return int(text) if text.isdecimal() else None


def _note(file: IO[str], text: str) -> None:
    """Make this the file's text. A full disk leaves it empty: the lock counts, not who holds it."""
    with suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), text.encode(), 0)


def _try(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def program_name(pid: int) -> str:
    """Name of a running process, "another user's or container's process" if it is not visible."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "another user's or container's process"


def holder(uri: str) -> int | None:
    """Id of the process that holds a board (0: unknown), None if it is free."""
    if not lock_path(uri).exists():
        return None
    with _open(uri) as file:
        return None if _try(file, fcntl.LOCK_SH) else (_holder_of(file) or 0)


class BoardLock:
    """Locks on all or none of the boards, held until `close` or the end of the process.
    TransportError names the process that holds a board."""

    def __init__(self, uris: Sequence[str]) -> None:
        self._files: list[IO[str]] = []
        try:
            for uri in uris:
                self._files.append(self._take(uri))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _take(uri: str) -> IO[str]:
        file = _open(uri)
        for _ in range(_TRIES):
            if _try(file, fcntl.LOCK_EX):
                _note(file, f"{os.getpid()}\n")
                return file
            time.sleep(_PAUSE_S)
        pid = _holder_of(file)
        file.close()
        if pid == os.getpid():
            raise TransportError(f"{uri}: this process ({pid}) holds it already; close it first")
        who = f"process {pid} ({program_name(pid)})" if pid else "another process"
        raise TransportError(f"{uri}: held by {who}; end it or take another board")

    def close(self) -> None:
        """Releases the boards. May be called twice."""
        for file in self._files:
            if not file.closed:
                _note(file, "")
                file.close()
        self._files = []
