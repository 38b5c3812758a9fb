"""The board daemons of a program's replicas: placed on their nodes, and where each replica finds
its boards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lora_cluster.replicas.daemon_boards import BoardPlace, DaemonBoards
from lora_cluster.replicas.daemon_calls import SILENT, DaemonCalls
from lora_host.errors import TransportError

if TYPE_CHECKING:
    from lora_cluster.replicas.messages import DaemonState
    from lora_sdk.opening.options import Progress

START_SECONDS = 120.0  # for a node with room, and for real boards to be opened
LOOK_SECONDS = 0.2
STARTS = 3  # that fail: a daemon that was there before may not have ended yet


class Span:
    """The boards of one replica. Thread-safe."""

    def __init__(self, daemons: Sequence[DaemonCalls], places: Sequence[BoardPlace]) -> None:
        self._places = places
        self._daemons = {place.daemon: daemons[place.daemon] for place in places}
        self._states: dict[int, DaemonState | None] = {}

    def ready(self) -> bool:
        """Ask all daemons; whether each serves."""
        self._states = {number: one.state() for number, one in self._daemons.items()}
        return all(state is not None and state.boards for state in self._states.values())

    def starts_fail(self) -> bool:
        """Whether a daemon that does not serve has been started again and again."""
        states = [state for state in self._states.values() if state is not None]
        return any(not state.boards and state.restarts >= STARTS for state in states)

    @property
    def devices(self) -> tuple[str, ...]:
        """URIs of the boards, as they were when `ready` was true."""
        found = []
        for place in self._places:
            state = self._states[place.daemon]
            assert state is not None  # it was ready
            found.append(f"{state.address}/{state.boards[place.board]}")
        return tuple(found)

    @property
    def node(self) -> str | None:
        """The node of the first board's daemon, as it was."""
        state = self._states.get(self._places[0].daemon)
        return None if state is None else state.node

    def why(self) -> str:
        """Which daemon did not serve, and why."""
        for number, state in self._states.items():
            if state is None or not state.boards:
                return _silent(self._daemons[number].address, state)
        return ""


class Daemons:
    """All daemons, from `open` until `close`."""

    def __init__(self, boards: DaemonBoards, options: Sequence[str]) -> None:
        """`options`: more words for `lora boardd serve`, where boards are emulated."""
        self._boards = boards
        self._options = options
        self._calls: list[DaemonCalls] = []

    def open(self, progress: Progress) -> list[Span]:
        """Place all, and wait until they serve. The boards of each replica. TransportError of the
        first daemon that does not serve; then none is left."""
        known = self._boards
        try:
            for number, address in enumerate(known.addresses):
                words = (known.cables(number), self._options)
                self._calls.append(DaemonCalls(address, known.kind, known.counts[number], *words))
            spans = [Span(self._calls, known.of_replica(index)) for index in range(known.replicas)]
            end = time.monotonic() + START_SECONDS
            for span in spans:
                while not span.ready():
                    if span.starts_fail() or time.monotonic() > end:
                        raise TransportError(span.why())
                    progress(0, 0)
                    time.sleep(LOOK_SECONDS)
            return spans
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all daemons."""
        if self._calls:
            with ThreadPoolExecutor(len(self._calls)) as executor:
                list(executor.map(DaemonCalls.stop, self._calls))
        self._calls = []


def _silent(address: str, state: DaemonState | None) -> str:
    reason = SILENT if state is None else state.cause or "it is being started"
    return f"the board daemon {address} does not serve: {reason}; see lora ray status"
