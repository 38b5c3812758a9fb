"""Commands on a terminal of so many columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.forked_process import forking_for, request_of
from tests.processes import environment

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(code: str, *arguments: object, columns: int = 80, timeout: float = 60) -> Screen:
    """What a person sees of a Python program with arguments: stdout and stderr as they come."""
    variables = {k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES")}
    request = request_of(code, [str(a) for a in arguments], variables, Path.cwd())
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    found = bytearray()
    reader = threading.Thread(target=_read, args=(master, found))
    reader.start()
    with open(slave, "r+b", buffering=0) as stream:
        status = forking_for(variables).status(json.dumps(request).encode(), [stream] * 3, timeout)
    reader.join()
    os.close(master)
    return Screen(status, found.decode())


class Screen:
    """The lines of a terminal as they stand when the program has ended."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.raw = status, text
        plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
        self.lines = [line.rpartition("\r")[2] for line in plain.split("\n")]

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self.lines)

    def too_long(self, columns: int = 80) -> Sequence[str]:
        """Lines that do not fit, but for those that are one word."""
        return [s for s in self.lines if len(s) > columns and len(s.split()) > 1]


def _read(master: int, found: bytearray) -> None:
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # the last process has closed the terminal
            return
        if not data:
            return
        found += data
