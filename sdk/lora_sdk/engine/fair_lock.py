"""A lock that is granted in the order of requests."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

# `threading.RLock` is granted to the first thread that acquires it after a release. That is the
# releasing thread itself while it runs steps in a loop: the others starve.


class FairLock:
    """A reentrant FIFO lock: a release hands it to the thread that has waited longest."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # held for a few instructions at a time
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0

    @property
    def contended(self) -> bool:
        """Whether another thread waits for the lock."""
        return bool(self._waiting)

    def __enter__(self) -> FairLock:
        me = threading.get_ident()
        with self._mutex:
            if self._owner in (None, me):
                self._owner = me
                self._depth += 1
                return self
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((me, gate))
        try:
            gate.acquire()  # opened by the release that makes this thread the owner
        except BaseException:  # Ctrl-C
            self._give_up(me, gate)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._mutex:
            self._depth -= 1
            if not self._depth:
                self._hand_over()

    def _hand_over(self) -> None:
        self._owner = None
        if self._waiting:
            self._owner, gate = self._waiting.popleft()
            self._depth = 1
            gate.release()

    def _give_up(self, me: int, gate: threading.Lock) -> None:
        with self._mutex:
            if (me, gate) in self._waiting:
                self._waiting.remove((me, gate))
            else:  # it was granted just now
                self._depth = 0
                self._hand_over()
