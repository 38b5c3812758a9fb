"""Temporary folders. Each process that needs one holds its lock. Its owner removes it. If the owner
was killed, the next start removes it; that of an emulation behind XRT, its cluster process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from lora_host.interrupt import Interrupt

XRT = "lora-xrt-"  # prefix of the folders of emulations behind XRT
LOCK_NAME = "owner.lock"
REMOVED = ".removed"
# Prefixes of a device process's file, + board "." process id: until it hands its connection to the
# cluster process, and from then on until its session ends.
STARTING, SERVED = "starting.", "served."
LAST_SECONDS = 5.0  # timeout for the end of a host that has closed its boards


class HeldFolder:
    """A new folder `path`, whose name begins with `prefix`, and its lock. Processes that inherit
    `descriptor` hold the lock too."""

    def __init__(self, prefix: str) -> None:
        with Interrupt():  # whole also where Ctrl-C comes: `remove_stale` takes it then
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = (self.path / f"{LOCK_NAME}.new").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # visible to others only when it is locked
            os.rename(self._lock.name, self.path / LOCK_NAME)

    @property
    def descriptor(self) -> int:
        """For `pass_fds` of a process that uses the folder longer than this one."""
        return self._lock.fileno()

    def remove(self) -> None:
        """Removes the folder. May be called twice."""
        _remove(self.path)
        self._lock.close()


def remove_unheld(folder: Path) -> bool:
    """Removes a folder that no process holds. False if a process holds it, or it is gone."""
    lock = _free_lock(folder)
    if lock is None:
        return False
    with lock:
        _remove(folder)
    return True


def remove_stale(prefix: str) -> None:
    """Removes the folders of this prefix whose owners were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if folder.suffix == REMOVED:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            remove_unheld(folder)


def remove_left(folder: Path) -> None:
    """Removes the folder once no process holds it; gives up after LAST_SECONDS."""
    end = time.monotonic() + LAST_SECONDS
    while folder.exists() and not remove_unheld(folder) and time.monotonic() < end:
        time.sleep(0.05)


def _remove(folder: Path) -> None:
    # Renamed first: a process that is still starting must not add files to it.
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
