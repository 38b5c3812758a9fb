"""Which of several threads runs the steps, and a lock that is granted in the order of requests.

One of the threads that wait for requests is the driver: it runs steps, which serve the requests of
all threads. The others sleep until their own request has progressed. A driver whose request has
ended leaves, and the thread that has slept longest becomes the driver. So a single caller runs its
own steps without switching threads, and no thread queues for a lock after its request has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from lora_host.errors import RequestError


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


class Waiter:
    """Lets one thread wait for an event. `wake` may be called from any thread."""

    def __init__(self) -> None:
        event = threading.Event()
        self.wake, self.clear, self.sleep = event.set, event.clear, event.wait


class Turns:
    """Makes one thread at a time the driver."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # held for a few instructions at a time
        self._driver: int | None = None
        self._sleeping: dict[Waiter, None] = {}  # the longest sleeping first

    def wait(
        self, waiter: Waiter, finished: Callable[[], bool], advance: Callable[[], None]
    ) -> None:
        """Return once `finished()`: call `advance` until then, or sleep while another thread does.

        Every change that may make `finished()` true must wake `waiter`. Exceptions of `advance` are
        raised here. RequestError in a callback of the running step, which would wait for itself.
        """
        me = threading.get_ident()
        if self._driver == me:
            raise RequestError(
                "a callback of a running request started another one, which would wait for itself; "
                "return from it first, or use another thread"
            )
        try:
            while True:
                waiter.clear()
                if finished():
                    return
                if self._driver == me or self._take_over(waiter, me):
                    advance()
                else:
                    waiter.sleep()
        finally:
            self._leave(waiter, me)

    def _take_over(self, waiter: Waiter, me: int) -> bool:
        """Become the driver if there is none."""
        with self._mutex:
            if self._driver is not None:
                self._sleeping[waiter] = None
                return False
            self._driver = me
            self._sleeping.pop(waiter, None)
            return True

    def _leave(self, waiter: Waiter, me: int) -> None:
        with self._mutex:
            self._sleeping.pop(waiter, None)
            if self._driver == me:
                self._driver = None
            if self._driver is None and self._sleeping:
                next(iter(self._sleeping)).wake()
