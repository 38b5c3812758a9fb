"""Links of boards with any container that has AuroraFlow cores: status, counters, and the cabling,
found without a payload by holding one core after another in reset: the far end loses its channel.

Without lora_ctrl nothing on the board can send a frame, so what the cables carry is not tested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .. import abi
from ..cluster_file import Cable
from .bare import BareBoards, BareCore

RESET_S = 1.1  # the core wants at least a second in reset
UP_S, SETTLE_S, LOOK_S = 3.0, 1.0, 0.01
DROP_S = 0.5  # until a channel whose far end is in reset is down
WATCH_S = 0.5  # idle links that are sound count no error in it

Port = tuple[int, int]  # board, port

COUNTERS = {
    "rx overflows": abi.LINK_RX_OVERFLOWS,
    "tx overflows": abi.LINK_TX_OVERFLOWS,
    "transfers sent": abi.LINK_TX_COUNT,
    "transfers received": abi.LINK_RX_COUNT,
    "hard errors": abi.LINK_HARD_ERRORS,
    "soft errors": abi.LINK_SOFT_ERRORS,
    "times down": abi.LINK_CHANNEL_DOWN,
    "frames": abi.LINK_FRAMES_RECEIVED,
    "frames with errors": abi.LINK_FRAMES_WITH_ERRORS,
}
_ERRORS = ("rx overflows", "tx overflows", "hard errors", "soft errors", "times down",
           "frames with errors")  # fmt: skip


@dataclass(frozen=True)
class BareLink:
    """A port's registers. `counters` by name of `COUNTERS`."""

    board: int
    port: int
    status: int
    configuration: int
    counters: dict[str, int]

    @property
    def healthy(self) -> bool:
        """Whether the channel is up without an error bit."""
        return self.status == abi.LINK_HEALTHY

    @property
    def errors(self) -> list[str]:
        """Counters that a sound link keeps at 0."""
        return [f"{name} {self.counters[name]}" for name in _ERRORS if self.counters[name]]

    @property
    def framing(self) -> bool:
        """Whether the core was built with framing, which our overlays need."""
        return bool(self.configuration & abi.LINK_FRAMING)

    @property
    def width(self) -> int:
        """Bytes of the core's FIFO."""
        return self.configuration >> 2 & 0x1FF


class BareLinks:
    """The link cores of all boards. `sleep` and `clock` are time's, but for tests."""

    def __init__(
        self,
        boards: BareBoards,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boards, self._sleep, self._clock = boards, sleep, clock

    @property
    def ports(self) -> list[Port]:
        """Every port of every board."""
        return [(b, c.port) for b in range(len(self._boards.boards)) for c in self._boards.cores]

    def read(self) -> list[BareLink]:
        """All ports' registers."""
        return [self._read(board, core) for board, core in self._cores()]

    def bring_up(self) -> None:
        """Resets all cores at once, waits until all have a channel or nothing moves any more, then
        sets the counters to 0."""
        self._write_all(abi.LINK_CORE_RESET, 1)
        self._sleep(RESET_S)
        self._write_all(abi.LINK_CORE_RESET, 0)
        begin = moved = self._clock()
        before = self._states()
        while not all(s == abi.LINK_HEALTHY for s in before.values()):
            self._sleep(LOOK_S)
            now, states = self._clock(), self._states()
            moved = now if states != before else moved
            before = states
            if now - begin > UP_S or now - moved > SETTLE_S:
                break
        self._write_all(abi.LINK_COUNTER_RESET, 1)
        self._write_all(abi.LINK_COUNTER_RESET, 0)

    def watch(self) -> None:
        """Lets the links be idle: what counts errors meanwhile is not sound."""
        self._sleep(WATCH_S)

    def cabling(self) -> tuple[list[Cable], list[str]]:
        """Cables between the boards, and a line for each port that has a channel without one of
        these: loopbacks, and ends at a board that is not among them. All channels are down
        afterwards; `bring_up` follows."""
        cables: list[Cable] = []
        problems: list[str] = []
        up = {port for port, status in self._states().items() if status == abi.LINK_HEALTHY}
        for board, core in self._cores():
            here = (board, core.port)
            if here not in up:
                continue
            up.discard(here)
            self._boards.boards[board].set_register(core, abi.LINK_CORE_RESET, 1)
            fallen = self._fallen(up)
            up -= fallen
            name = f"board {board} port {core.port}"
            if not fallen:
                problems.append(
                    f"{name}: has a channel, to itself or to a board that was not named"
                )
            for far in sorted(fallen):
                if far[0] == board:
                    problems.append(f"{name}: a loopback to board {far[0]} port {far[1]}")
                else:
                    cables.append(Cable(*here, *far))
        return cables, problems

    def _fallen(self, watched: set[Port]) -> set[Port]:
        """Ports whose channel goes; after the first one a cable has no other end."""
        end = self._clock() + DROP_S
        while True:
            states = self._states()
            fallen = {port for port in watched if states[port] != abi.LINK_HEALTHY}
            if fallen or self._clock() > end:
                return fallen
            self._sleep(LOOK_S)

    def _states(self) -> dict[Port, int]:
        return {
            (board, core.port): self._boards.boards[board].register(core, abi.LINK_STATUS)
            for board, core in self._cores()
        }

    def _cores(self) -> Iterator[tuple[int, BareCore]]:
        for board in range(len(self._boards.boards)):
            for core in self._boards.cores:
                yield board, core

    def _write_all(self, register: int, value: int) -> None:
        for board, core in self._cores():
            self._boards.boards[board].set_register(core, register, value)

    def _read(self, board: int, core: BareCore) -> BareLink:
        it = self._boards.boards[board]
        return BareLink(
            board,
            core.port,
            it.register(core, abi.LINK_STATUS),
            it.register(core, abi.LINK_CONFIGURATION),
            {name: it.register(core, register) for name, register in COUNTERS.items()},
        )
