"""Where the boards under test are: in this process, behind the real XRT's software emulation,
behind the mock vrtd, or real ones that --device names. All of them run the same firmware, so the
same tests hold."""

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

MOST = 8
# Where waits are real time the boards' clock runs faster, so that a core's second in reset is none
# of ours; a watchdog of 20 s of theirs is 2 s, which a loaded computer needs.
SPEED = 10
SHORT = {
    "core_reset_us": 150_000,
    "link_up_us": 2_500_000,
    "watchdog_ms": 20_000,
    "step_us": 21_000_000,
}
HASTY = {**SHORT, "watchdog_ms": 1500, "step_us": 1_600_000}  # where a hang is waited for


class Transport(AbstractContextManager["Transport"]):
    """Boards of one transport. `devices(n)` are the URIs of n of them, in a ring and idle; empty
    for emulated boards of this process."""

    name = "emu"
    timeouts: Mapping[str, int] | None = None

    def devices(self, boards: int) -> tuple[str, ...]:
        """URIs of so many boards."""
        return ()

    def named(self, boards: int) -> dict[str, Any]:
        """The same as options of Cluster.open and Engine."""
        return {"boards": boards, "devices": self.devices(boards)}

    @property
    def overlay(self) -> Overlay:
        """LORA-F for these boards."""
        return load_overlay(default_overlay(self.devices(1), None))

    def open(self, boards: int, **options: Any) -> Cluster:
        """A cluster of so many boards."""
        named = self.named(boards)
        options.setdefault("timeouts", self.timeouts)
        return Cluster.open(**named, overlay=self.overlay, **options)

    def fault(
        self, cluster: Cluster, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0
    ) -> None:
        """Plants a fault (abi.FAULT_...)."""
        assert cluster.emulated is not None
        cluster.emulated.fault(board, kind, a, b, c)

    def __exit__(self, *_: object) -> None:
        pass


class Named(Transport):
    """Boards that --device names; faults cannot be planted there."""

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
    """A mock server for vrtd for each number of boards, since cables make a ring of them all."""

    name = "slash"
    timeouts = SHORT

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[int, MockServer] = {}
        self._current: MockServer | None = None
        # Other processes' mock servers have boards of the same names.
        locks = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-locks-"))
        os.environ["LORA_LOCK_FOLDER"] = locks

    def devices(self, boards: int) -> tuple[str, ...]:
        if boards not in self._running:
            self._running[boards] = self._stack.enter_context(
                MockServer(boards, ["--speed", str(SPEED)])
            )
        self._current = self._running[boards]
        for board in range(boards):  # the boards outlive the test that planted a fault in them
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


class Xrt(Transport):
    """XRT reads its environment when its library is loaded: once a process, so a process of its own
    has this transport, and the number of boards is changed behind XRT's back."""

    name = "xrt"
    timeouts = SHORT

    def __init__(self) -> None:
        from lora_host.xrt_environment import XrtEnvironment

        self._place = XrtEnvironment(MOST)
        os.environ.update(self._place.variables)

    def devices(self, boards: int) -> tuple[str, ...]:
        self._wait_until_idle()
        self._place.set_cluster(boards, speed=SPEED)
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
            raise TransportError(f"the cluster process refuses: {self._place.log()[-400:]}")

    @property
    def _socket(self) -> Path:
        return self._place.folder / "cluster.sock"

    def _wait_until_idle(self) -> None:
        """The cluster process of the last test ends with its last board."""
        end = time.monotonic() + 10
        while self._socket.exists() and time.monotonic() < end:
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self._place.close()


def open_transport(name: str, uris: Sequence[str]) -> AbstractContextManager[Transport]:
    """The transport of this name."""
    if name == "device":
        return nullcontext(Named(uris))
    return {"emu": Transport, "slash": Slash, "xrt": Xrt}[name]()
