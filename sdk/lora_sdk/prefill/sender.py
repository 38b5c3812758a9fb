"""The thread that writes K and V to the boards, beside their steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Sender:
    """Runs writes in a thread of its own, in their order. The thread starts with the first."""

    def __init__(self) -> None:
        self._writes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False

    def put(self, write: Callable[[], None]) -> None:
        """Queue a write, which raises nothing. Does not wait; any thread may call it."""
        self._writes.put(write)
        with self._starting:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="lora-kv", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread after the write that it is in; the others are left out."""
        with self._starting:
            self._closed = True
        self._writes.put(lambda: None)
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._writes.get()()
