"""Boards under test: emulated in this process, behind the real XRT's software emulation, behind the
mock server for vrtd, or real boards named by --device. All run the same firmware, so the same tests
apply."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import TransportError
from lora_host.overlay import Overlay, load_overlay
from lora_host.selection import default_overlay
from lora_host.vrtd_mock.process import MockServer
from tests.daemons import ThreadedDaemon

MAX_BOARDS = 8
# The boards' clock runs faster than real time, which shortens waits such as a core's second in
# reset. A watchdog of 20 board seconds is 2 s, which a loaded computer needs.
SPEED = 10
SHORT = {
    "core_reset_us": 250_000,
    "link_up_us": 2_500_000,
    "link_test_us": 10_000_000,
    "watchdog_ms": 20_000,
    "step_us": 21_000_000,
}
HASTY = {**SHORT, "watchdog_ms": 1500, "step_us": 1_600_000}  # for tests that wait for a hang


class Transport(AbstractContextManager["Transport"]):
    """Boards of one transport. `devices(n)`: URIs of n idle boards in a ring; empty
    for emulated boards of this process."""

    name = "emu"
    timeouts: Mapping[str, int] | None = None

    def devices(self, boards: int) -> tuple[str, ...]:
        """URIs of `boards` boards."""
        return ()

    def named(self, boards: int) -> dict[str, Any]:
        """The boards as arguments of Cluster.open and Engine."""
        return {"boards": boards, "devices": self.devices(boards)}

    @property
    def overlay(self) -> Overlay:
        """LORA-F for these boards."""
        return load_overlay(default_overlay(self.devices(1), None))

    def open(self, boards: int, **options: Any) -> Cluster:
        """A cluster of `boards` boards."""
        named = self.named(boards)
        options.setdefault("timeouts", self.timeouts)
        return Cluster.open(**named, overlay=self.overlay, **options)

    def fault(
        self, cluster: Cluster, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0
    ) -> None:
        """Injects a fault (abi.FAULT_...)."""
        assert cluster.emulated is not None
        cluster.emulated.fault(board, kind, a, b, c)

    def __exit__(self, *_: object) -> None:
        pass


class Named(Transport):
    """Boards that --device names. Faults cannot be injected there."""

    name = "device"

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = tuple(uris)

    def devices(self, boards: int) -> tuple[str, ...]:
        if boards > len(self._uris):
            pytest.skip(f"{len(self._uris)} boards named with --device, {boards} needed")
        return self._uris[:boards]

    def fault(self, cluster: Cluster, board: int, kind: int, *more: int, **named: int) -> None:
        pytest.skip("a real board takes no planted faults")


class Slash(Transport):
    """One mock server for vrtd per number of boards, since all its boards form a ring."""

    name = "slash"
    timeouts = SHORT

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[int, MockServer] = {}
        self._current: MockServer | None = None
        # Mock servers of other processes have boards with the same names.
        locks = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-locks-"))
        os.environ["LORA_LOCK_FOLDER"] = locks

    def devices(self, boards: int) -> tuple[str, ...]:
        if boards not in self._running:
            self._running[boards] = self._stack.enter_context(
                MockServer(boards, ["--speed", str(SPEED)])
            )
        self._current = self._running[boards]
        for board in range(boards):  # the boards outlive the test that injected a fault
            self._current.command(f"fault {board} {abi.FAULT_NONE} 0 0 0")
        os.environ["LORA_VRTD_SOCKET"] = str(self._current.socket)
        return self._current.uris

    def fault(
        self, cluster: Cluster, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0
    ) -> None:
        assert self._current is not None
        self._current.command(f"fault {board} {kind} {a} {b} {c}")

    @property
    def overlay(self) -> Overlay:
        return load_overlay("lora_f_v80")

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Boardd(Transport):
    """Boards behind a daemon's Unix socket, in a thread of this process: one daemon per number of
    boards, since all its boards form a ring."""

    name = "boardd"
    timeouts = SHORT

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[int, ThreadedDaemon] = {}
        self._current: ThreadedDaemon | None = None

    def devices(self, boards: int) -> tuple[str, ...]:
        if boards not in self._running:
            self._running[boards] = self._stack.enter_context(
                ThreadedDaemon(("emu:u280",) * boards, speed=SPEED)
            )
        self._current = self._running[boards]
        for board in range(boards):  # the boards outlive the test that injected a fault
            self._current.emulated.fault(board, abi.FAULT_NONE)
        return self._current.uris

    def fault(
        self, cluster: Cluster, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0
    ) -> None:
        assert self._current is not None
        self._current.emulated.fault(board, kind, a, b, c)

    @property
    def overlay(self) -> Overlay:
        return load_overlay("lora_f_u280")

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Xrt(Transport):
    """XRT reads its environment only when its library is loaded, so this transport needs its own
    process. The number of boards is changed without XRT's knowledge."""

    name = "xrt"
    timeouts = SHORT

    def __init__(self) -> None:
        from lora_host.xrt_environment import XrtEnvironment

        self._environment = XrtEnvironment(MAX_BOARDS)
        os.environ.update(self._environment.variables)

    def devices(self, boards: int) -> tuple[str, ...]:
        self._wait_until_idle()
        self._environment.set_cluster(boards, speed=SPEED)
        return tuple(f"xrt:{board}" for board in range(boards))

    @property
    def overlay(self) -> Overlay:
        return load_overlay("lora_f_u280")

    def fault(
        self, cluster: Cluster, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0
    ) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(f"FAULT {board} {kind} {a} {b} {c}".encode())
            answer = connection.recv(1)
        if not answer:
            raise TransportError(f"the cluster process refuses: {self._environment.log()[-400:]}")

    @property
    def _socket(self) -> Path:
        return self._environment.folder / "cluster.sock"

    def _wait_until_idle(self) -> None:
        """Waits for the end of the last test's cluster process."""
        end = time.monotonic() + 10
        while self._socket.exists() and time.monotonic() < end:
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self._environment.close()


def open_transport(name: str, uris: Sequence[str]) -> AbstractContextManager[Transport]:
    """The transport of this name."""
    if name == "device":
        return nullcontext(Named(uris))
    return {"emu": Transport, "boardd": Boardd, "slash": Slash, "xrt": Xrt}[name]()
