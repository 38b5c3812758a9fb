"""Commands in processes forked from one that has imported them already: the imports are most of a
short command's time. `forked` is subprocess.run for Python programs, with captured output."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO

# Read once, when the interpreter or a library starts.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "OPENBLAS_", "XILINX_", "XCL_", "EMULATION_")
PRELOADED = (
    "lora_sdk.cli.main",
    "lora_sdk.cli.run_command",
    "lora_sdk.engine.engine",
    "lora_host.cluster_file",
    "lora_host.overlay",
)


def forked(
    code: str, arguments: Sequence[str | bytes], environment: Mapping[str, str], cwd: Path | None,
    stdin: bytes | None, timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """Runs `code` with sys.argv = ["-c", *arguments]. TimeoutExpired after `timeout` seconds."""
    parent = forking_for(environment)
    words = [os.fsdecode(word) for word in arguments]
    request = request_of(code, words, environment, cwd or Path.cwd())
    with ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        if stdin is None:
            given = files.enter_context(Path(os.devnull).open("rb"))
        else:
            given.write(stdin)
            given.seek(0)
        status = parent.status(json.dumps(request).encode(), (given, out, err), timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


def forking_for(environment: Mapping[str, str]) -> Forking:
    """The process whose children read `environment` when they start."""
    return _forking(tuple(sorted((k, v) for k, v in environment.items() if _at_start(k))))


def request_of(
    code: str, words: Sequence[str], environment: Mapping[str, str], cwd: Path
) -> list[object]:
    """What a child is asked to do, for `Forking.status` as JSON."""
    variables = {_sent(name): _sent(value) for name, value in environment.items()}
    return [code, [_sent(word) for word in words], variables, _sent(str(cwd))]


class Forking:
    """A process that forks one child per request."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
            env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        atexit.register(self._close)

    def status(self, request: bytes, files: Sequence[IO[bytes]], timeout: float) -> int:
        """The return code of the child that got `request` and these standard streams."""
        numbers = [file.fileno() for file in files]
        socket.send_fds(self._socket, [len(request).to_bytes(4, "little")], numbers)
        self._socket.sendall(request)
        child = int.from_bytes(self._receive(4), "little")
        self._socket.settimeout(timeout)
        try:
            return int.from_bytes(self._receive(4), "little", signed=True)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            self._socket.settimeout(None)
            self._receive(4)
            raise subprocess.TimeoutExpired("forked", timeout) from None
        finally:
            self._socket.settimeout(None)

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ChildProcessError("the process that forks the commands has ended")
        return data

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _forking(at_start: tuple[tuple[str, str], ...]) -> Forking:
    others = {k: v for k, v in os.environ.items() if not _at_start(k)}
    return Forking({**others, **dict(at_start)})


def _sent(text: str) -> str:
    """The bytes of `text`, one a character: the child's locale may be another."""
    return os.fsencode(text).decode("latin-1")


def _received(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def _at_start(name: str) -> bool:
    return name.startswith(AT_START)


# The child runs its program at the top level, so that it ends as an interpreter of its own would.
_PROGRAM = """
import sys
from tests.forked_process import serve
program = serve(int(sys.argv[1]))
if program is not None:
    exec(program)
"""


def serve(number: int) -> str | None:
    """Forks children until the socket closes: None then, and in a child its program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        __import__(name)
    requests = socket.socket(fileno=number)
    while True:
        data, streams, _, _ = socket.recv_fds(requests, 4, 3)
        if not data:
            return None
        size = int.from_bytes(data, "little")
        code, arguments, environment, cwd = json.loads(requests.recv(size, socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            requests.close()
            return _prepared(code, arguments, environment, cwd, streams)
        for stream in streams:
            os.close(stream)
        requests.sendall(child.to_bytes(4, "little"))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        requests.sendall(status.to_bytes(4, "little", signed=True))


def _prepared(
    code: str, arguments: list[str], environment: dict[str, str], cwd: str, streams: list[int]
) -> str:
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    if os.isatty(1):  # the parent's streams were of files, which can seek
        sys.stdout, sys.stderr = (open(fd, "w", buffering=1, closefd=False) for fd in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update({_received(name): _received(value) for name, value in environment.items()})
    os.chdir(_received(cwd))
    sys.argv = ["-c", *map(_received, arguments)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return code
