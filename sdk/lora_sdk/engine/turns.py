"""Selects the thread that runs the steps when several threads wait for requests.

One of the waiting threads is the driver: it runs steps, which serve the requests of all threads.
The others sleep until their own request has progressed. A driver whose request has ended leaves,
and the thread that has slept longest becomes the driver. So a single caller runs its own steps
without switching threads, and no thread queues for a lock after its request has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lora_host.errors import RequestError


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
