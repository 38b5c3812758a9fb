"""Who runs the steps, when several threads wait for requests.

One of the waiting threads is the driver and runs steps, which serve everybody's requests. The
others sleep until their own request has news. A driver whose request has ended leaves, and the
oldest sleeping thread drives on. A lone caller therefore runs its own steps, without a hop to
another thread, and nobody waits in line for a lock only to learn that his request ended long ago.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lora_host.errors import RequestError


class Waiter:
    """A thread's wait for news. `wake` may be called from any thread."""

    def __init__(self) -> None:
        event = threading.Event()
        self.wake, self.clear, self.sleep = event.set, event.clear, event.wait


class Turns:
    """Makes one thread at a time the driver."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # held for a few instructions at a time
        self._driver: int | None = None
        self._sleeping: dict[Waiter, None] = {}  # the oldest first

    def wait(
        self, waiter: Waiter, finished: Callable[[], bool], advance: Callable[[], None]
    ) -> None:
        """Return once `finished()`: call `advance` until then, or sleep while another thread does.

        Whatever may make `finished()` true wakes `waiter`. What `advance` raises is raised here.
        RequestError in a callback of the running step, which would wait for itself.
        """
        me = threading.get_ident()
        if self._driver == me:
            raise RequestError(
                "a callback of a running request asked for steps, which would wait for itself; "
                "return from it first, or ask in another thread"
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
        """Become the driver where there is none."""
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
