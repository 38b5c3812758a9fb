"""The device process of one board: connects to the host, passes the connection to the cluster
process, and waits until the host or the cluster process ends."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from lora_host.held_folder import SERVED, STARTING

FOLDER_VARIABLE = "LORA_EMULATION_DIR"
SOCKET_NAME = "cluster.sock"
HELLO = b"LORA"
CONNECT_SECONDS = 30.0  # the host already listens, but a loaded machine may be slow


def main() -> int:
    """Exit code 0 once the host or the cluster process has ended the session, or the environment's
    folder is gone; 2 with one line if the arguments are invalid, 1 if it fails."""
    os.closerange(3, 256)  # inherited sockets of other boards, whose peers would see no EOF
    folder = Path(os.environ[FOLDER_VARIABLE])
    name = os.environ["EMULATION_SOCKETID"]
    found = re.match(r"device(\d+)_", name)
    if not found:
        sys.stderr.write(f"EMULATION_SOCKETID {name!r}: device<N>_... expected\n")
        return 2
    try:
        return _serve(folder, name, int(found[1]))
    except OSError as error:
        if not folder.exists():  # the host was killed, and its environment was removed
            return 0
        sys.stderr.write(f"board {found[1]}: no session with its host: {error}\n")
        return 1


def _serve(folder: Path, name: str, board: int) -> int:
    host = _connect(folder / name)
    for _ in range(3):
        cluster = _join(folder)
        socket.send_fds(cluster, [HELLO + bytes([board])], [host.fileno()])
        if cluster.recv(1):  # accepted; a cluster process that is ending sends nothing
            host.close()
            served = folder / f"{SERVED}{board}.{os.getpid()}"
            served.touch()
            (folder / f"{STARTING}{board}.{os.getpid()}").unlink(missing_ok=True)
            cluster.recv(1)
            served.unlink(missing_ok=True)
            return 0
        cluster.close()
    sys.stderr.write(f"{folder}: the cluster process does not take board {board}\n")
    return 1


def _connect(path: Path) -> socket.socket:
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > end or not path.parent.exists():
                raise
            time.sleep(0.01)


def _join(folder: Path) -> socket.socket:
    """A connection to the cluster process, which is started if it does not run."""
    with (folder / "cluster.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(folder / SOCKET_NAME))
            return connection
        except OSError:
            connection.close()
        with (folder / "cluster.log").open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "lora_host.device_process.cluster_process", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # XRT kills whole process groups
            )
        return _connect(folder / SOCKET_NAME)


if __name__ == "__main__":
    sys.exit(main())
