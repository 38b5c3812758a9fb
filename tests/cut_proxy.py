"""A TCP proxy that cuts its connections after a count of bytes: in the middle of what is sent, or
of what is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class CutProxy(AbstractContextManager["CutProxy"]):
    """Forwards connections to its `port` to `target`, both of this computer.

    `cut(direction, count, then)`: `count` bytes after the call in the direction "sent" (to the
    target) or "answered", all connections end; later ones are "taken" or "refused"."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._left: dict[str, int] = {}
        self._then = self._state = "taken"
        self.cuts = 0
        self._start(self._accept)

    def cut(self, direction: str, count: int, then: str) -> None:
        with self._lock:
            self._left, self._then = {direction: count}, then

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._state == "refused":
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open += [near, far]
                self._start(self._forward, near, far, "sent")
                self._start(self._forward, far, near, "answered")

    def _forward(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    kept, due = self._allowed(direction, len(data))
                sink.sendall(data[:kept])
                if due:
                    self._cut_all()
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _allowed(self, direction: str, count: int) -> tuple[int, bool]:
        """How many of `count` bytes may pass, and whether the cut is due then."""
        if direction not in self._left:
            return count, False
        before = self._left[direction]
        self._left[direction] = max(0, before - count)
        return min(count, before), 0 < before <= count

    def _cut_all(self) -> None:
        with self._lock:
            self._left, self._state = {}, self._then
            self.cuts += 1
            self._end_all()

    def _end_all(self) -> None:
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            self._end_all()
