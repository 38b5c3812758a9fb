"""A network between two ends that can be cut: connections pass through threads of the campaign."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 1 << 16
BACKLOG = 64
CONNECT_S = 5.0

Connect = Callable[[], socket.socket]


class Relay:
    """Passes bytes between whoever connects to the socket that `listen` makes and what `connect`
    reaches."""

    def __init__(self, listen: Connect, connect: Connect) -> None:
        self._new, self._connect = listen, connect
        self._passing = threading.Event()
        self._passing.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._left = 0
        self._held, self._go_on = threading.Event(), threading.Event()
        self._listen = self._begin()

    def _begin(self) -> socket.socket:
        listen = self._new()
        listen.listen(BACKLOG)
        threading.Thread(target=self._accept, args=(listen,), daemon=True).start()
        return listen

    @contextmanager
    def held_after(self, count: int) -> Iterator[Callable[[float], bool]]:
        """Bytes from the far end are held once so many have come, until the context ends. It gives
        a wait of at most so many seconds for that moment: whether it has come."""
        with self._lock:
            self._left = count
            self._held.clear()
            self._go_on.clear()
        try:
            yield self._held.wait
        finally:
            with self._lock:
                self._left = 0
            self._go_on.set()

    def cut(self) -> None:
        """End the connections that are open; new ones are made."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def part(self) -> None:
        """End the connections, and refuse new ones."""
        with suppress(OSError):  # wakes who accepts
            self._listen.shutdown(socket.SHUT_RDWR)
        self._listen.close()
        self.cut()

    def silence(self) -> None:
        """No byte passes from now on, and no end is told. New connections are made and stay
        silent."""
        self._passing.clear()

    def heal(self) -> None:
        """Bytes pass again, and connections are made."""
        self._passing.set()
        if self._listen.fileno() < 0:
            self._listen = self._begin()

    def close(self) -> None:
        """End everything."""
        self.part()
        self._passing.set()

    def _accept(self, listen: socket.socket) -> None:
        while True:
            try:
                near, _ = listen.accept()
            except OSError:  # it is closed
                return
            try:
                far = self._connect()
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            halves = threading.Barrier(2)
            for source, sink, answers in ((near, far, False), (far, near, True)):
                arguments = (source, sink, answers, halves)
                threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, answers: bool, halves: threading.Barrier
    ) -> None:
        """One direction. Whoever ends last closes both."""
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if answers:
                    self._count(len(data))
                self._passing.wait()
                sink.sendall(data)
        self._passing.wait()  # of an end nobody is told either
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        if halves.wait() == 0:
            with self._lock:
                self._open -= {source, sink}
            source.close()
            sink.close()

    def _count(self, count: int) -> None:
        with self._lock:
            if self._left <= 0:
                return
            self._left -= count
            if self._left > 0:
                return
        self._held.set()
        self._go_on.wait()


def unix_relay(path: str, target: str) -> Relay:
    """Between a Unix socket at `path` and the one at `target`."""

    def listen() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(path).unlink(missing_ok=True)
        made.bind(path)
        return made

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(target)
        except OSError:
            made.close()
            raise
        return made

    return Relay(listen, connect)


def tcp_relay(host: str, port: int) -> tuple[Relay, int]:
    """Between a new port of `host` and `port`. The relay and its port."""
    with socket.create_server((host, 0)) as found:
        chosen = int(found.getsockname()[1])
    relay = Relay(
        lambda: socket.create_server((host, chosen)),
        lambda: socket.create_connection((host, port), CONNECT_S),
    )
    return relay, chosen
