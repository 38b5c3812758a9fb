"""Starts and stops a mock server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ..errors import TransportError

_END_S = 5.0


class MockServer:
    """A running mock server; a context manager. `socket`: path of its socket; `uris`: its boards.
    Clients find it through the environment: LORA_VRTD_SOCKET=socket."""

    def __init__(self, boards: int = 2, arguments: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lora-vrtd-")
        self.socket = Path(self._folder.name) / "vrtd.sock"
        command = [sys.executable, "-m", "lora_host.vrtd_mock", "--socket", str(self.socket)]
        self._command = [*command, "--boards", str(boards), *arguments]
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is its parent's
        )
        words = self._line().split()
        if not words or words[0] != "ready":
            self.close()
            raise TransportError("the mock server for vrtd did not start; its stderr says why")
        self.uris = tuple(f"slash:{bdf}" for bdf in words[1:])

    def command(self, line: str) -> None:
        """Sends a command, see `__main__`. TransportError if the mock server refuses it."""
        answer = self._ask(line)
        if answer != "ok":
            raise TransportError(f"mock server for vrtd: {line!r}: {answer!r} found, 'ok' expected")

    def starts(self, board: int) -> int:
        """How often the board's lora_ctrl was started."""
        return int(self._ask(f"starts {board}"))

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """Kills it, as in a crash."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Kills it and starts it again: other boards, of the same names at the same socket."""
        self.kill()
        self._close_streams()
        self._start()

    def close(self) -> None:
        """Stops it."""
        self.process.terminate()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_streams()
        self._folder.cleanup()

    def _close_streams(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> MockServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
