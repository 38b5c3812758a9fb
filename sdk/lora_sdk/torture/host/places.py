"""Boards of the processes' runs, and the other processes around them."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lora_host.device_process.__main__ import FOLDER_VARIABLE
from lora_host.vrtd_mock.process import MockServer
from lora_host.xrt_environment import XrtEnvironment

BOARDS = 2
SPEED = 10  # board seconds a second
CLUSTER, DEVICE = b"lora_host.device_process.cluster_process\0", b"lora_host.device_process\0"


@dataclass
class Place:
    """`uris`: none for boards of the engine's own process. `processes`: ids by name. `restart`: of
    the daemon, after it was killed. `end`: of processes that were stopped."""

    variables: Mapping[str, str]
    uris: Sequence[str] = ()
    processes: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    end: Callable[[], None] = lambda: None


@contextmanager
def own_process() -> Iterator[Place]:
    """Emulated boards of the engine's process."""
    with tempfile.TemporaryDirectory(prefix="lora-locks-") as locks:
        yield Place({**os.environ, "LORA_LOCK_FOLDER": locks})


@contextmanager
def slash() -> Iterator[Place]:
    """Boards of the mock server for vrtd."""
    with (
        tempfile.TemporaryDirectory(prefix="lora-locks-") as locks,
        MockServer(BOARDS, ["--speed", str(SPEED)]) as server,
    ):
        named = {"LORA_LOCK_FOLDER": locks, "LORA_VRTD_SOCKET": str(server.socket)}
        pid = server.process.pid
        yield Place({**os.environ, **named}, server.uris, {"daemon": lambda: pid})
        os.kill(pid, signal.SIGCONT)


@contextmanager
def xrt() -> Iterator[Place]:
    """Boards behind the real XRT's software emulation. Its cluster process is the daemon."""
    with XrtEnvironment(BOARDS) as place:
        place.set_cluster(BOARDS, speed=SPEED)
        inside = (FOLDER_VARIABLE + "=" + str(place.folder)).encode()
        yield Place(
            place.variables,
            tuple(f"xrt:{board}" for board in range(BOARDS)),
            {
                "daemon": lambda: _only(CLUSTER, inside),
                "device process": lambda: _only(DEVICE, inside, b"EMULATION_SOCKETID=device1_"),
            },
            lambda: _end_stopped(inside),
        )


PLACES = {"host": own_process, "xrt": xrt, "slash": slash}


def _found(part: bytes, *variables: bytes) -> list[int]:
    """Processes whose command line has `part` and whose environment has lines that begin so."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, lines = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if part in words and all(b"\0" + one in b"\0" + lines for one in variables):
            found.append(int(path.name))
    return found


def _only(part: bytes, *variables: bytes) -> int:
    (found,) = _found(part, *variables)
    return found


def _end_stopped(*variables: bytes) -> None:
    for process in _found(CLUSTER, *variables):
        if "\nState:\tT" in Path(f"/proc/{process}/status").read_text():
            os.kill(process, signal.SIGKILL)
