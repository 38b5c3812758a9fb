"""Links of boards with any container that has AuroraFlow cores: status, counters and cabling.

The cabling is found by resetting the cores one at a time: the peer then loses its channel. Without
lora_ctrl no frame can be sent, so data transfer is not tested."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .. import abi
from ..cluster_file import Cable
from .bare import BareBoards, BareCore

RESET_S = 1.1  # the core requires at least a second in reset
UP_S, SETTLE_S, POLL_S = 3.0, 1.0, 0.01
DROP_S = 0.5  # until a channel whose peer is in reset is down
IDLE_S = 0.5  # healthy idle links count no errors in this time

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
ERRORS = ("rx overflows", "tx overflows", "hard errors", "soft errors", "times down",
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
        """Nonzero counters that are 0 on a healthy link."""
        return [f"{name} {self.counters[name]}" for name in ERRORS if self.counters[name]]

    @property
    def framing(self) -> bool:
        """Whether the core was built with framing, which the project's overlays need."""
        return bool(self.configuration & abi.LINK_FRAMING)

    @property
    def width(self) -> int:
        """Bytes of the core's FIFO."""
        return self.configuration >> 2 & 0x1FF


class BareLinks:
    """The link cores of all boards. `sleep` and `clock`: tests may replace those of `time`."""

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
        """Resets all cores together, waits until all channels are up or no status changes any more,
        then clears the counters."""
        self._write_all(abi.LINK_CORE_RESET, 1)
        self._sleep(RESET_S)
        self._write_all(abi.LINK_CORE_RESET, 0)
        start = changed = self._clock()
        before = self._states()
        while not all(s == abi.LINK_HEALTHY for s in before.values()):
            self._sleep(POLL_S)
            now, states = self._clock(), self._states()
            changed = now if states != before else changed
            before = states
            if now - start > UP_S or now - changed > SETTLE_S:
                break
        self._write_all(abi.LINK_COUNTER_RESET, 1)
        self._write_all(abi.LINK_COUNTER_RESET, 0)

    def idle(self) -> None:
        """Waits while the links are idle. Links that count errors meanwhile are faulty."""
        self._sleep(IDLE_S)

    def cabling(self) -> tuple[list[Cable], list[str]]:
        """Cables between the boards, and a line for each other port with a channel: loopbacks and
        cables to other boards. All channels are down afterwards; call `bring_up`."""
        cables: list[Cable] = []
        problems: list[str] = []
        up = {port for port, status in self._states().items() if status == abi.LINK_HEALTHY}
        for board, core in self._cores():
            here = (board, core.port)
            if here not in up:
                continue
            up.discard(here)
            self._boards.boards[board].set_register(core, abi.LINK_CORE_RESET, 1)
            lost = self._lost(up)
            up -= lost
            name = f"board {board} port {core.port}"
            if not lost:
                problems.append(
                    f"{name}: has a channel, to itself or to a board that was not named"
                )
            for far in sorted(lost):
                if far[0] == board:
                    problems.append(f"{name}: a loopback to board {far[0]} port {far[1]}")
                else:
                    cables.append(Cable(*here, *far))
        return cables, problems

    def _lost(self, watched: set[Port]) -> set[Port]:
        """Ports in `watched` that lose their channel. Returns at the first one."""
        end = self._clock() + DROP_S
        while True:
            states = self._states()
            lost = {port for port in watched if states[port] != abi.LINK_HEALTHY}
            if lost or self._clock() > end:
                return lost
            self._sleep(POLL_S)

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
