"""An open cluster of the C library: its pointer, its lock, and exceptions of failed calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import native
from .callbacks import bind
from .errors import TransportError
from .failure import to_error
from .gate import Gate
from .interrupt import Interrupt

# Calls that wait for boards and can be cancelled.
RUNS = frozenset(
    (
        "links_up",
        "links_discover",
        "register_list",
        "checksum",
        "regions",
        "scrub",
        "step",
        "greedy",
        "generate",
    )
)

# Calls beside which no memory is written: they change what a write relies on.
ALONE = frozenset(("program", "reserve", "reset"))


class _State:
    """Whether a handle's boards have been released."""

    closed = False

    def end(self, close: Callable[[Any], None], pointer: Any) -> None:
        """Releases them."""
        self.closed = True
        close(pointer)


class Handle:
    """Calls into C go through `call`, one at a time, and writes to memory through `beside`. Closed
    by `close`, when nothing refers to it any more, or at exit. `explain` returns text to append to
    the report of a failure."""

    def __init__(
        self, uris: Sequence[str], timeouts: Any, explain: Callable[[], str] = str
    ) -> None:
        self._ffi, self._lib = native.ffi(), native.lib()
        bind()
        self._explain = explain
        self._lock = threading.RLock()
        self._writes = Gate()
        self._failure = self._ffi.new("struct lora_failure *")
        self._interrupt = Interrupt()
        self._context = self._ffi.new_handle(self._interrupt)
        self._pointer = self._open(uris)
        self._state = _State()
        close = self._lib.lora_cluster_close
        self._finalizer = weakref.finalize(self, self._state.end, close, self._pointer)
        self._lib.lora_cluster_set_timeouts(self._pointer, timeouts)
        self._lib.lora_cluster_on_poll(self._pointer, self._lib.lora_py_cancelled, self._context)

    def _open(self, uris: Sequence[str]) -> Any:
        names = [self._ffi.new("char[]", uri.encode()) for uri in uris]
        out = self._ffi.new("struct lora_cluster **")
        table = self._ffi.new("char *[]", names)
        if self._lib.lora_cluster_open(table, len(names), out, self._failure):
            raise to_error(self._failure)
        return out[0]

    @property
    def closed(self) -> bool:
        """Whether the boards have been released."""
        return self._state.closed

    def close(self) -> None:
        """Releases the boards. A call that runs in another thread is cancelled first."""
        if self.closed:
            return
        self._lib.lora_cluster_cancel(self._pointer)
        with self._lock, self._writes.barred():
            self._finalizer()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls lora_cluster_<name>(cluster, *arguments, failure); raises its failure."""
        with self._lock:
            pointer = self._alive() if self._state.closed else self._pointer
            function = getattr(self._lib, f"lora_cluster_{name}")
            if name in RUNS:
                with self._interrupt:
                    status = function(pointer, *arguments, self._failure)
            elif name in ALONE:
                with self._writes.barred():
                    status = function(pointer, *arguments, self._failure)
            else:
                status = function(pointer, *arguments, self._failure)
            if status:
                raise to_error(self._failure, self.report() + self._explain())

    def beside(self, name: str, *arguments: Any) -> None:
        """As `call`, also while another thread is in `call`. Only for writes to memory."""
        failure = self._ffi.new("struct lora_failure *")
        with self._writes.passing():
            pointer = self._alive()
            status = getattr(self._lib, f"lora_cluster_{name}")(pointer, *arguments, failure)
        if status:
            raise to_error(failure)

    def stats(self) -> Any:
        """`struct lora_cluster_stats *`."""
        record = self._ffi.new("struct lora_cluster_stats *")
        with self._lock:
            self._lib.lora_cluster_get_stats(self._alive(), record)
        return record

    def report(self) -> str:
        """Board state at the last failure or the first hang, "" if there was none."""
        with self._lock:
            text: bytes = self._ffi.string(self._lib.lora_cluster_report(self._alive()))
        return text.decode(errors="replace")

    def _alive(self) -> Any:
        if self._state.closed:
            raise TransportError("the cluster is closed; open it again")
        return self._pointer
