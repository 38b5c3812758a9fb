"""Requests of one call to a fleet, until all of them have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_cluster.dispatch.dispatcher import Dispatcher
    from lora_sdk.engine.requests import Request

CANCEL_SECONDS = 5.0  # for an engine to notice


class Running:
    """Requests that a dispatcher runs, from now on."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        requests: Sequence[Request],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called for each that has ended, by the dispatcher's thread. RequestError if
        the fleet is closed."""
        self._dispatcher = dispatcher
        self._requests = requests
        self._on_end = on_end
        self._ended = threading.Semaphore(0)
        self._left = len(requests)
        dispatcher.submit(requests, self._note)

    def wait(self) -> None:
        """Return once all have ended."""
        while self._left:
            self._ended.acquire()
            self._left -= 1

    def cancel(self) -> None:
        """Cancel those that have not ended. Does not wait."""
        for request in self._requests:
            request.cancel()
        self._dispatcher.wake()

    def close(self) -> None:
        """The same, and wait a while for them to leave their engines."""
        self.cancel()
        for _ in range(self._left):
            self._ended.acquire(timeout=CANCEL_SECONDS)

    def _note(self) -> None:
        self._ended.release()
        self._on_end()
