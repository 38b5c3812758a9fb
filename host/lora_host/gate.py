"""Calls that may run at once, and calls beside which none of them may."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Any number of calls pass it at once. A call that bars it waits for those inside and keeps
    others out. Barring is reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._barred_by: int | None = None
        self._depth = 0

    @contextmanager
    def passing(self) -> Iterator[None]:
        """One of many calls. Waits while the gate is barred by another thread."""
        with self._changed:
            self._changed.wait_for(self._open)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def barred(self) -> Iterator[None]:
        """The only call."""
        with self._changed:
            self._changed.wait_for(self._open)
            self._barred_by = threading.get_ident()
            self._depth += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._inside == 0)
            yield
        finally:
            with self._changed:
                self._depth -= 1
                if not self._depth:
                    self._barred_by = None
                self._changed.notify_all()

    def _open(self) -> bool:
        return self._barred_by in (None, threading.get_ident())
