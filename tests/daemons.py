"""Board daemons for tests: in a thread of this process, or as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lora_host.boardd.daemon import Daemon
from lora_host.boardd.settings import Settings, parse_cables
from lora_host.emulated import Emulated
from tests.processes import environment

END_S = 20


class ThreadedDaemon(AbstractContextManager["ThreadedDaemon"]):
    """A daemon on a Unix socket of its own, and on what else `more` says. `uris`: its boards."""

    def __init__(self, boards: Sequence[str], cables: Sequence[str] = (), **more: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lora-boardd-test-")
        self.socket = Path(self._folder.name) / "boardd.sock"
        near, far = parse_cables(cables, len(boards))
        self.daemon = Daemon(
            Settings(tuple(boards), socket=self.socket, cables=near, far_cables=far, **more)
        )
        self._thread = threading.Thread(target=self.daemon.run)
        self._thread.start()

    @property
    def address(self) -> str:
        """The socket's address."""
        return self.daemon.addresses[0]

    @property
    def uris(self) -> tuple[str, ...]:
        """URIs of the boards over the socket."""
        return tuple(f"{self.address}/{board}" for board in self.daemon.boards)

    @property
    def emulated(self) -> Emulated:
        """Its emulated boards."""
        assert self.daemon.emulated is not None
        return self.daemon.emulated

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        self._thread.join(END_S)
        self.daemon.close()
        self._folder.cleanup()


class DaemonProcess(AbstractContextManager["DaemonProcess"]):
    """`lora boardd serve` as a process."""

    def __init__(self, *arguments: str, boards: int = 2, board: str = "emu:u280") -> None:
        command = [sys.executable, "-c", "from lora_sdk.cli.main import main; main()", "boardd"]
        named = [word for _ in range(boards) for word in ("--board", board)]
        self.process = subprocess.Popen(
            [*command, "serve", *named, *arguments, "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the daemon ended with {self.process.wait(END_S)}"
        said = json.loads(line)
        self.addresses: list[str] = said["addresses"]
        self.uris = [f"{self.addresses[-1]}/{name}" for name in said["boards"]]

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(END_S)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
