"""A board daemon as a process, which is killed, stopped and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lora_host.boardd.status import daemon_status
from lora_host.errors import TransportError

END_S = 10.0
BOARD = "emu:u280"
EVENT, POLL = "[eventfd]", "[eventpoll]"
HOST = "127.0.0.1"
ANY_PORT = f"{HOST}:0"
PROGRAM = (
    "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # PR_SET_PDEATHSIG
    "from lora_sdk.cli.main import main; main()"
)
"""`lora`, which ends with its parent."""


class BoardDaemon:
    """`lora boardd serve` of one emulated board, with these options besides. `addresses`: where."""

    def __init__(self, *options: str) -> None:
        self._words = ("boardd", "serve", "--board", BOARD, "--json", *options)
        self.addresses: Sequence[str] = ()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves. TransportError if it does not."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self._words],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is the campaign's
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise TransportError(f"a board daemon ended with {self.process.wait(END_S)}")
        self.addresses = json.loads(line)["addresses"]
        self._wait_for(POLL, 1)  # the last descriptor that it opens
        port = f"{HOST}:{self.port}"
        self._words = tuple(port if word == ANY_PORT else word for word in self._words)

    @property
    def port(self) -> int:
        """Where it listens with TLS, 0: it does not."""
        last = self.addresses[-1].rpartition(":")[2]
        return int(last) if last.isdecimal() else 0

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """As in a crash."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def restart(self) -> None:
        """End it if it runs, and start it again at the same places."""
        self.kill()
        self.start()

    def left(self, before: Mapping[int, int]) -> list[str]:
        """Boards that are held once all clients have gone, and descriptors that it has beyond those
        of `before`; after a while. Nothing of one that does not run, or is another one since."""
        end = time.monotonic() + END_S
        while True:
            found = self._left(before)
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def descriptors(self) -> dict[int, int]:
        """Their count, by its process; empty where it does not run."""
        process = self.process
        if process.poll() is not None or _is_stopped(process.pid):
            return {}
        return {process.pid: len(self._open())}

    def wait_for_cables(self, count: int) -> None:
        """Until so many cables to other daemons are in: each has an event."""
        self._wait_for(EVENT, count)

    def _wait_for(self, what: str, count: int) -> None:
        end = time.monotonic() + END_S
        while sum(what in path for path in self._open()) < count and time.monotonic() < end:
            time.sleep(0.02)

    def _open(self) -> list[str]:
        """What its descriptors are of."""
        folder, found = f"/proc/{self.process.pid}/fd", []
        for name in os.listdir(folder):
            with suppress(OSError):  # it is closed meanwhile
                found.append(os.readlink(f"{folder}/{name}"))
        return found

    def _left(self, before: Mapping[int, int]) -> list[str]:
        found = []
        for process, count in self.descriptors().items():
            more = count - before.get(process, count)
            if more > 0:
                found.append(f"{more} descriptors of the daemon at {self.addresses[0]}")
            states = daemon_status(self.addresses[0])
            found += [f"{one.name} held by {one.holder}" for one in states if one.holder]
        return found

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        self.kill()


def _is_stopped(process: int) -> bool:
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
        return any(line.startswith("State:\tT") for line in status)
