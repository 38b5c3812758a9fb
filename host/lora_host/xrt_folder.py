"""The temporary folder of an emulation behind XRT. Whoever needs it holds its lock. Its owner
removes it, or, where the owner was killed, the cluster process or the next start."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

PREFIX = "lora-xrt-"
LOCK_NAME = "owner.lock"
REMOVED = ".removed"
STARTING = "starting."  # and a device process's id: a file while its board is not handed over
LAST_SECONDS = 5.0  # a host that has closed its boards may take so long to end


class HeldFolder:
    """A new folder `path` and its lock, which the processes that inherit `descriptor` hold too."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = (self.path / f"{LOCK_NAME}.new").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self._lock.name, self.path / LOCK_NAME)  # seen by others once it is locked

    @property
    def descriptor(self) -> int:
        """For `pass_fds` of a process that goes on using the folder after this one."""
        return self._lock.fileno()

    def remove(self) -> None:
        """Removes the folder. Twice is no error."""
        _remove(self.path)
        self._lock.close()


def remove_unheld(folder: Path) -> bool:
    """Removes a folder that no process holds; False where one does, or it is gone."""
    lock = _free_lock(folder)
    if lock is None:
        return False
    with lock:
        _remove(folder)
    return True


def remove_stale() -> None:
    """Removes the folders of killed owners."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if folder.suffix == REMOVED:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            remove_unheld(folder)


def remove_left(folder: Path) -> None:
    """Removes the folder once nobody holds it; gives up after LAST_SECONDS."""
    end = time.monotonic() + LAST_SECONDS
    while folder.exists() and not remove_unheld(folder) and time.monotonic() < end:
        time.sleep(0.05)


def _remove(folder: Path) -> None:
    # Renamed first: a process that is still starting finds no folder, and puts nothing into it.
    gone = folder.with_suffix(REMOVED)
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _free_lock(folder: Path) -> IO[str] | None:
    try:
        lock = (folder / LOCK_NAME).open("r+")
    except OSError:  # another user's, or without a lock yet
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
