"""A thread for each replica: it listens, and starts the replica again where it was lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lora_cluster.replicas.actor_calls import ActorCalls, ActorLost
from lora_host.errors import LoraError
from lora_host.naming import counted

if TYPE_CHECKING:
    from lora_cluster.replicas.replica import Replica
    from lora_sdk.opening.options import Progress

NEWS_SECONDS = 0.2  # that a replica waits for something to tell
PLACE_SECONDS = 60.0  # until a node has room; a worker process starts in a few
OPENINGS = 3  # that fail one after another
MOST_PAUSE = 30.0  # seconds before the next

_log = logging.getLogger("lora_cluster.replicas")

OnLost = Callable[["Replica", LoraError, bool], None]
"""A replica was lost. True: it is started again."""


class Stopped(LoraError):
    """The program ends while a replica is opened."""


class Supervisor:
    """Of one replica. Callbacks run in its thread."""

    def __init__(
        self, replica: Replica, on_lost: OnLost, on_back: Callable[[Replica], None]
    ) -> None:
        self._replica = replica
        self._on_lost = on_lost
        self._on_back = on_back
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lora-{replica.name}", daemon=True)

    def start(self) -> None:
        """Begin to listen, once the replica is open."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the replica stays as it is."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def open(self, progress: Progress) -> None:
        """Place the replica on a node and open its engine. LoraError: no node has room in time, or
        the engine's own. Daemons of its boards serve."""
        calls = self._launch()
        try:
            end = time.monotonic() + PLACE_SECONDS
            while not calls.placed(0.2):
                progress(0, 0)
                if time.monotonic() > end:
                    raise LoraError(f"{self._replica.name}: {_no_room(self._replica)}")
            self._open(calls, progress)
        except BaseException:
            calls.kill()
            raise

    def _launch(self) -> ActorCalls:
        replica, options = self._replica, self._replica.options
        return ActorCalls(replica.name, options.kind, options.boards, replica.span)

    def _open(self, calls: ActorCalls, look: Progress) -> None:
        options, registry = self._replica.options, self._replica.registry
        known = registry.all()
        opened = calls.open(options.kind, options.boards, options.engine, known, look)
        for name, path, scale in [one for one in registry.all() if one not in known]:
            calls.load_adapter(name, path, scale)
        self._replica.use(calls, opened)

    def _run(self) -> None:
        losses = 0  # one after another
        while not self._stop.is_set():
            try:
                self._replica.listen(NEWS_SECONDS)
                continue
            except LoraError as error:
                if self._stop.is_set():
                    return
                losses = 1 if self._replica.worked else losses + 1
                self._lose(error)
            if losses > 1 and self._stop.wait(min(2.0**losses, MOST_PAUSE)):
                return
            if not self._reopen():
                return

    def _lose(self, error: LoraError) -> None:
        _log.warning("%s", error)
        running = self._replica.lose(error)
        self._on_lost(self._replica, error, True)
        for remote in running:
            remote.request.fail(error)  # goes on elsewhere

    def _reopen(self) -> bool:
        """Whether the replica runs again. Waits for a node with room as long as the program runs,
        but lets requests wait for it only PLACE_SECONDS."""
        for attempt in range(1, OPENINGS + 1):
            span = self._replica.span
            if span is not None and not self._wait_for(span.ready, span.why):
                return False
            calls = self._launch()
            try:
                if not self._wait_for(lambda: calls.placed(0.2), lambda: _no_room(self._replica)):  # noqa: B023
                    calls.kill()
                    return False
                self._open(calls, self._look)
            except LoraError as error:
                calls.kill()
                if self._stop.is_set():
                    return False
                last = attempt == OPENINGS
                _log.warning("%s: opening it again failed: %s", self._replica.name, error)
                if last:
                    self._give_up(error)
                    return False
                if self._stop.wait(2.0**attempt):
                    return False
                continue
            _log.info("%s runs again", self._replica.name)
            self._on_back(self._replica)
            return True
        return False

    def _wait_for(self, ready: Callable[[], bool], why: Callable[[], str]) -> bool:
        """False: the program ends. Requests wait PLACE_SECONDS, then end with what `why` says."""
        end = time.monotonic() + PLACE_SECONDS
        told = False
        while not ready():
            if self._stop.wait(0.05):
                return False
            if not told and time.monotonic() > end:
                told = True
                self._give_up(ActorLost(f"{self._replica.name}: {why()}"))
        return True

    def _give_up(self, error: LoraError) -> None:
        _log.warning("%s", error)
        self._on_lost(self._replica, error, False)

    def _look(self, _done: int, _total: int) -> None:
        if self._stop.is_set():
            raise Stopped("the program ends")


def _no_room(replica: Replica) -> str:
    options = replica.options
    boards = counted(options.boards, f"free {options.kind} board")
    what = f"no node has {boards}" if replica.span is None else "Ray has started no process"
    hint = "see lora ray status, and start nodes with lora ray start"
    return f"{what} since {PLACE_SECONDS:g} s; {hint}"
