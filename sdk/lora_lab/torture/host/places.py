"""Boards of the processes' runs, and what is around them: other processes, and networks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lora_host.boardd.keys import write_keys
from lora_host.device_process.__main__ import FOLDER_VARIABLE
from lora_host.held_folder import HeldFolder
from lora_host.vrtd_mock.process import MockServer
from lora_host.xrt_environment import XrtEnvironment
from lora_lab.torture.folders import HELD
from lora_lab.torture.host.daemons import ANY_PORT, BOARD, HOST, BoardDaemon
from lora_lab.torture.host.relay import Relay, tcp_relay, unix_relay
from lora_lab.torture.host.vrtd_holder import BankHolder

BOARDS = 2
SPEED = 10  # board seconds a second
FULL_BANK = 0  # of the second board
CLUSTER, DEVICE = b"lora_host.device_process.cluster_process\0", b"lora_host.device_process\0"
SECOND_DEVICE = b"EMULATION_SOCKETID=device1_"


def _nothing() -> None:
    return


@dataclass
class Place:
    """`uris`: none for boards of the engine's own process. `processes`: ids by name. `networks`:
    by name, "boards" lies before the last of the boards. `moments`: of phases whose fault strikes
    once so many bytes have come through it. `restart`: the daemon, killed or not. `fill`: a bank of
    the second board; `empty`: the opposite. `end`: of processes that were stopped. `left`: what is
    held once all hosts have gone. `alone`: a host starts no process that outlives it."""

    variables: Mapping[str, str]
    uris: Sequence[str] = ()
    processes: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    networks: Mapping[str, Relay] = field(default_factory=dict)
    moments: Mapping[str, int] = field(default_factory=dict)
    restart: Callable[[], None] = _nothing
    fill: Callable[[], None] = _nothing
    empty: Callable[[], None] = _nothing
    end: Callable[[], None] = _nothing
    left: Callable[[], list[str]] = list
    alone: bool = True


@contextmanager
def _folder() -> Iterator[Path]:
    held = HeldFolder(HELD)
    try:
        yield held.path
    finally:
        held.remove()


@contextmanager
def own_process() -> Iterator[Place]:
    """Emulated boards of the engine's process."""
    with _folder() as locks:
        yield Place({**os.environ, "LORA_LOCK_FOLDER": str(locks)})


@contextmanager
def slash() -> Iterator[Place]:
    """Boards of the mock server for vrtd."""
    with (
        _folder() as locks,
        MockServer(BOARDS, ["--speed", str(SPEED)]) as server,
        ExitStack() as held,
    ):
        named = {"LORA_LOCK_FOLDER": str(locks), "LORA_VRTD_SOCKET": str(server.socket)}

        def fill() -> None:
            holder = BankHolder(str(server.socket), BOARDS - 1, FULL_BANK)
            held.callback(holder.close)

        try:
            yield Place(
                {**os.environ, **named},
                server.uris,
                {"daemon": lambda: server.process.pid},
                restart=server.restart,
                fill=fill,
                empty=held.close,
            )
        finally:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)


@contextmanager
def xrt() -> Iterator[Place]:
    """Boards behind the real XRT's software emulation. Its cluster process is the daemon."""
    with XrtEnvironment(BOARDS) as place:
        place.set_cluster(BOARDS, speed=SPEED)
        inside = (FOLDER_VARIABLE + "=" + str(place.folder)).encode()
        try:
            yield Place(
                place.variables,
                tuple(f"xrt:{board}" for board in range(BOARDS)),
                {
                    "daemon": lambda: _only(CLUSTER, inside),
                    "device process": lambda: _only(DEVICE, inside, SECOND_DEVICE),
                },
                end=lambda: _end_stopped(inside),
                alone=False,  # XRT's own end a little later
            )
        finally:  # also after Ctrl-C
            _end_stopped(inside)


@contextmanager
def boardd() -> Iterator[Place]:
    """A board behind a daemon's Unix socket, and one behind another daemon, TLS and a network; of
    the cables between them one passes another network."""
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        write_keys(folder / "keys", [HOST])
        far, cable = folder / "far.sock", folder / "cable.sock"
        options = ("--listen", ANY_PORT, "--keys", str(folder / "keys" / HOST))
        theirs = _daemon(stack, far, *options)
        cables = unix_relay(str(cable), str(far))
        stack.callback(cables.close)
        ends = (f"0.1=unix:{cable}/{BOARD}/0.0", f"0.0=unix:{far}/{BOARD}/0.1")
        ours = _daemon(stack, folder / "near.sock", "--cable", ends[0], "--cable", ends[1])
        for daemon in (ours, theirs):
            daemon.wait_for_cables(len(ends))
        network, port = tcp_relay(HOST, theirs.port)
        stack.callback(network.close)
        yield Place(
            {**os.environ, "LORA_BOARDD_KEYS": str(folder / "keys" / "client")},
            (f"{ours.addresses[0]}/{BOARD}/0", f"tcp:{HOST}:{port}/{BOARD}/0"),
            {"daemon": lambda: theirs.process.pid, "other daemon": lambda: ours.process.pid},
            {"boards": network, "cable": cables},
            restart=theirs.restart,
            left=_left_by(ours, theirs),
        )


WORKERS_MOMENTS = {"prefill": 512, "hand-over": 24 << 10}
"""Bytes from the worker: it has run a step of the prompt; a part of K and V is on its way."""


@contextmanager
def worker() -> Iterator[Place]:
    """A worker's board behind a daemon and a network; others are the engine's own."""
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        daemon = _daemon(stack, folder / "far.sock")
        near = folder / "near.sock"
        network = unix_relay(str(near), str(folder / "far.sock"))
        stack.callback(network.close)
        yield Place(
            os.environ,
            (f"unix:{near}/{BOARD}/0",),
            {"daemon": lambda: daemon.process.pid},
            {"boards": network},
            WORKERS_MOMENTS,
            restart=daemon.restart,
            left=_left_by(daemon),
        )


def _daemon(stack: ExitStack, path: Path, *options: str) -> BoardDaemon:
    daemon = BoardDaemon("--speed", str(SPEED), "--socket", str(path), *options)
    stack.callback(daemon.close)
    return daemon


def _left_by(*daemons: BoardDaemon) -> Callable[[], list[str]]:
    before: dict[int, int] = {}
    for daemon in daemons:
        before |= daemon.descriptors()
    return lambda: [one for daemon in daemons for one in daemon.left(before)]


PLACES = {
    "host": own_process,
    "xrt": xrt,
    "slash": slash,
    "boardd": boardd,
    "worker": worker,
    "fleet": worker,
}


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
    """The process that began last: one of the run before may still be ending."""
    return max(_found(part, *variables), key=_began)


def _began(process: int) -> int:
    """When, in the system's ticks; 0 for a process that has ended."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def _end_stopped(*variables: bytes) -> None:
    for process in (*_found(CLUSTER, *variables), *_found(DEVICE, *variables)):
        with suppress(OSError):  # it has ended meanwhile
            if "\nState:\tT" in Path(f"/proc/{process}/status").read_text():
                os.kill(process, signal.SIGKILL)
