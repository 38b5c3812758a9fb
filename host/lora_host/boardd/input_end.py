"""Ends a daemon with the process that started it, however that one ends: it holds the other end of
standard input."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

CLOSED = -1  # cannot be read, as what has ended
GRACE_S = 30.0  # beyond what a daemon takes to give its boards back


def end_with_input() -> None:
    """From now on the end of standard input is a SIGTERM, and the end of this process after GRACE_S
    more, whatever it does. What is read is ignored."""
    descriptor = CLOSED if sys.stdin is None else sys.stdin.fileno()
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()


def _watch(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
