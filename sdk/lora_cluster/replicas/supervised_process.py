"""A child process that is started again when it ends, less often the sooner it ends."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO

from lora_host.errors import LoraError, one_line

STOP_SECONDS = 20.0  # between SIGTERM and SIGKILL
MOST_LINE = 1 << 16  # characters of a line that are kept

_log = logging.getLogger("lora_cluster.replicas")


@dataclass(frozen=True)
class Pauses:
    """Seconds between an end and the next start: `first`, twice as long after each further run
    that was no longer ready than `sound`, `most` at most. After a sound run: none."""

    first: float = 0.25
    most: float = 30.0
    sound: float = 60.0

    def after(self, failures: int) -> float:
        """Before the next start, after so many failures one after another."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.most) if failures else 0.0


@dataclass(frozen=True)
class KeptState:
    """`pid`: None while it does not run. `told`: its first line of output, with which it says that
    it is ready, None before. `restarts`: starts after an end. `cause`: of the last end, or why it
    could not be started; "" if there was none."""

    pid: int | None = None
    told: str | None = None
    restarts: int = 0
    cause: str = ""


class KeptProcess:
    """Starts the process, and again whenever it ends, until `stop`. Its standard input is open as
    long as this process runs, so it may end with it."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        pauses: Pauses = Pauses(),
        before: KeptState = KeptState(),
    ) -> None:
        """`command` is asked before each start; its LoraError is a failed start. `before`: restarts
        and cause of a process that was kept by another one."""
        self._name = name
        self._command = command
        self._pauses = pauses
        self._state = before
        self._process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"lora-{name}", daemon=True)

    def start(self) -> None:
        """Begin. Does not wait."""
        self._thread.start()

    @property
    def state(self) -> KeptState:
        """Now."""
        return self._state

    def stop(self) -> None:
        """End the process and return once it has ended. May be called twice."""
        with self._lock:
            self._stop.set()
            process = self._process
        if process is not None:
            process.terminate()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if process is not None and process.poll() is None:
            process.kill()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        failures = 0
        while True:
            ready = self._run()
            sound = ready is not None and time.monotonic() - ready >= self._pauses.sound
            failures = 0 if sound else failures + 1
            if self._stop.wait(self._pauses.after(failures)):
                return
            self._state = replace(self._state, restarts=self._state.restarts + 1)

    def _run(self) -> float | None:
        """Once, to its end. Returns when it was ready, None if it never was."""
        try:
            with self._lock:
                if self._stop.is_set():
                    return None
                process = self._process = self._started()
        except (LoraError, OSError) as error:
            self._ended(one_line(error))
            return None
        with process:
            self._state = replace(self._state, pid=process.pid)
            last: list[str] = []
            errors = threading.Thread(target=self._follow, args=(process.stderr, last))
            errors.start()
            ready = self._read(process.stdout)
            errors.join()
            code = process.wait()
        if code < 0:  # what it said last has nothing to do with it
            self._ended(f"process {process.pid} was ended by {_signal(-code)}")
        else:
            self._ended(": ".join([f"process {process.pid} ended with code {code}", *last]))
        return ready

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(self._command()),
            stdin=subprocess.PIPE,  # never written: its end tells that this process has ended
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the program that drains first
        )

    def _read(self, output: IO[str] | None) -> float | None:
        assert output is not None  # a pipe
        told = output.readline(MOST_LINE).rstrip("\n")
        if not told:
            return None
        self._state = replace(self._state, told=told)
        ready = time.monotonic()
        while output.read(MOST_LINE):
            pass
        return ready

    def _follow(self, errors: IO[str] | None, last: list[str]) -> None:
        assert errors is not None  # a pipe
        while line := errors.readline(MOST_LINE):
            if text := line.strip():
                last[:] = [one_line(text)]
                _log.warning("%s: %s", self._name, text)

    def _ended(self, cause: str) -> None:
        self._state = replace(self._state, pid=None, told=None, cause=cause)
        if not self._stop.is_set():
            _log.warning("%s: %s", self._name, cause)


def _signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
