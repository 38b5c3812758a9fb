"""Starts and ends Ray nodes on this computer."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from lora_cluster.replicas.daemon_boards import DAEMON
from lora_cluster.replicas.node_boards import BOARDS, encoded, resources
from lora_host.errors import LoraError, RequestError, one_line

LOOPBACK = "127.0.0.1"
PREFIX = "lora-ray-"
STORE_BYTES = 78 << 20  # the least that Ray takes: tokens are small
START_SECONDS = 300.0
STARTS = 3  # where Ray's own limit is too short
STOP_SECONDS = 45.0
READY = b"Ray runtime started."
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else 15, and boards wait for their host
}
FOLDER_CHARACTERS = 38  # of 107 that a socket's path may have; Ray's names take the others


@dataclass(frozen=True)
class NodeRecord:
    """A node that runs here. `since`: its process's start, in the kernel's clock ticks, so that
    another process of the same number is not taken for it."""

    pid: int
    since: int
    address: str
    folder: str
    boards: dict[str, int]

    @property
    def token(self) -> Path:
        """The file of the cluster's token."""
        return Path(self.folder) / "token"

    @property
    def runs(self) -> bool:
        """Whether the process still runs."""
        return _since(self.pid) == self.since


@dataclass(frozen=True)
class NodeOptions:
    """`join`: address of the cluster's first node, None to be that. `token`: a file with the
    cluster's token, None for a new one. `bound`: the node ends with this process. `daemon`: address
    of the board daemon that may serve its boards. `keys`: of that daemon and of replicas, None as
    the environment says."""

    boards: Mapping[str, Sequence[str]]
    host: str = LOOPBACK
    port: int = 6379
    join: str | None = None
    token: Path | None = None
    bound: bool = False
    daemon: str | None = None
    keys: Path | None = None


class _StartTimeout(LoraError):
    """Ray gives a node 30 s to start, which is short on a busy computer."""


def start_node(options: NodeOptions) -> NodeRecord:
    """Start a node and wait until it answers. LoraError with Ray's reason if it does not."""
    clear_stale()
    for _ in range(STARTS - 1):
        with suppress(_StartTimeout):
            return _started(options)
    return _started(options)


def _started(options: NodeOptions) -> NodeRecord:
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        if len(str(folder)) > FOLDER_CHARACTERS:
            raise RequestError(
                f"the path {folder} is too long for Ray's sockets; set TMPDIR to a folder with a "
                "shorter one"
            )
        token = _token(options.token)
        _write(folder / "token", token)
        port = options.port or _free_port(options.host)
        arguments = _arguments(options, port, folder)
        _write(folder / "arguments.json", json.dumps(arguments))
        more = ["--bound"] if options.bound else []
        process = subprocess.Popen(
            [sys.executable, "-m", "lora_cluster.replicas.node_main", str(folder), *more],
            env=_environment(options, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program that drains first
        )
        try:
            _wait_ready(process, folder)
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    address = options.join or f"{options.host}:{port}"
    counts = {kind: len(uris) for kind, uris in options.boards.items()}
    record = NodeRecord(process.pid, _since(process.pid) or 0, address, str(folder), counts)
    _write(folder / "node.json", json.dumps(asdict(record)))
    return record


def stop_node(record: NodeRecord) -> None:
    """End a node and all its processes. LoraError: it does not end."""
    if record.runs:
        os.kill(record.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while record.runs:
            if time.monotonic() > end:
                raise LoraError(
                    f"the Ray node of process {record.pid} did not end within {STOP_SECONDS:g} s; "
                    "kill it"
                )
            with suppress(ChildProcessError):
                os.waitpid(record.pid, os.WNOHANG)
            time.sleep(0.05)
    shutil.rmtree(record.folder, ignore_errors=True)


@contextmanager
def running_node(options: NodeOptions) -> Iterator[NodeRecord]:
    """A node for the time of a program."""
    record = start_node(options)
    try:
        yield record
    finally:
        stop_node(record)


def own_nodes() -> list[NodeRecord]:
    """Nodes of this user that run on this computer, the oldest first."""
    found = []
    for folder in _folders():
        with suppress(OSError, ValueError, TypeError):
            record = NodeRecord(**json.loads((folder / "node.json").read_text()))
            if record.runs and Path(record.folder) == folder:
                found.append(record)
    return sorted(found, key=lambda one: one.since)


def clear_stale() -> None:
    """Remove folders of nodes that were killed, and those of starts that were."""
    for folder in _folders():
        starter = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError, ValueError, TypeError):
            try:
                runs = NodeRecord(**json.loads((folder / "node.json").read_text())).runs
            except FileNotFoundError:
                runs = _since(int(starter)) is not None
            if not runs:
                shutil.rmtree(folder, ignore_errors=True)


def _folders() -> list[Path]:
    """Folders of this user alone: anybody may write into the temporary folder."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            known = folder.lstat()
            if stat.S_ISDIR(known.st_mode) and known.st_uid == os.getuid():
                found.append(folder)
    return found


def _arguments(options: NodeOptions, port: int, folder: Path) -> list[str]:
    places = {} if options.daemon is None else {f"{DAEMON}{options.daemon}": 1.0}
    first = [
        "--head", f"--port={port}", f"--object-store-memory={STORE_BYTES}",
        "--include-dashboard=false", f"--temp-dir={folder / 'r'}",
    ]  # fmt: skip
    others = [f"--address={options.join}", f"--object-store-memory={STORE_BYTES}"]
    return [
        *(first if options.join is None else others),
        "--block",
        "--disable-usage-stats",
        "--include-log-monitor=false",
        f"--node-ip-address={options.host}",
        "--num-cpus=1",
        f"--resources={json.dumps({**resources(options.boards), **places})}",
    ]


def _environment(options: NodeOptions, folder: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        BOARDS: encoded(options.boards),
        **ENVIRONMENT,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
    }
    paths = [os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(":") if one]
    if paths:  # workers have another working folder
        environment["PYTHONPATH"] = ":".join(paths)
    if options.keys is not None:
        environment["LORA_BOARDD_KEYS"] = os.path.abspath(options.keys)
    if options.host == LOOPBACK:
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray takes no other address then
    return environment


def _wait_ready(process: subprocess.Popen[bytes], folder: Path) -> None:
    log = folder / "log"
    end = time.monotonic() + START_SECONDS
    while READY not in (log.read_bytes() if log.exists() else b""):
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text(errors="replace").split("\n") if log.exists() else []
            reason = next((line for line in reversed(lines) if line.strip()), "no reason is told")
            kind = _StartTimeout if "timed out during startup" in reason else LoraError
            raise kind(f"the Ray node did not start: {one_line(reason)}")
        time.sleep(0.1)


def _token(file: Path | None) -> str:
    if file is None:
        return secrets.token_hex(32)
    try:
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file}: {error}; expected a Ray token") from None
    if len(token) < 32:
        raise RequestError(f"{file}: {len(token)} characters; expected a Ray token, of 32 at least")
    return token


def _write(file: Path, text: str) -> None:
    """For this user alone."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        port: int = one.getsockname()[1]
        return port


def _since(pid: int) -> int | None:
    """A process's start, None if there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
