"""Ctrl-C while C code runs: recorded, seen by the library at its next poll, raised afterwards."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

# `signal` converts handlers to enums, which takes 20 us per step. The wrapped functions do not.
_plain: Any = importlib.import_module("_signal")
_get, _set = _plain.getsignal, _plain.signal

_main = [threading.main_thread().ident]  # a fork makes its thread the main one


def _note_main() -> None:
    _main[0] = threading.main_thread().ident


os.register_at_fork(after_in_child=_note_main)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM inside does what Ctrl-C does, also where that is ignored, as in a shell's job."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _press_ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _press_ctrl_c(_signal: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


class Interrupt:
    """Guards calls into C: `with interrupt: call()`. Inside, SIGINT only sets `pressed`, which the
    poll callback reads. On exit the previous handler is called. Outside the main thread it does
    nothing, since Python delivers signals to the main thread only."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Handler | None = None
        self._depth = 0

    def __enter__(self) -> Interrupt:
        self._depth += 1
        if self._depth > 1 or threading.get_ident() != _main[0]:
            return self
        before = _get(signal.SIGINT)
        if callable(before):
            self.pressed = False
            self._before = before
            _set(signal.SIGINT, self._press)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth or self._before is None:
            return
        before, self._before = self._before, None
        _set(signal.SIGINT, before)
        if self.pressed:
            self.pressed = False
            before(signal.SIGINT, None)

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        self.pressed = True
