"""A board daemon that a process keeps running ends with that process, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lora_host.boardd.status import daemon_status
from lora_host.lock import holder
from lora_host.vrtd_mock.process import MockServer
from tests.processes import environment

pytestmark = pytest.mark.slow
END_S = 60.0
KEEPER = """
import sys, time
from lora_cluster.replicas.daemon_command import serve_command
from lora_cluster.replicas.supervised_process import KeptProcess
kept = KeptProcess("test", lambda: serve_command(sys.argv[1], sys.argv[2:]))
kept.start()
while kept.state.told is None:
    time.sleep(0.02)
print(kept.state.pid, flush=True)
sys.stdin.readline()
kept.stop()
"""


@contextmanager
def keeper(address: str, *boards: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that keeps a daemon running, and that daemon's process id."""
    command = [sys.executable, "-c", KEEPER, address, *boards]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + END_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_keeper_leaves_no_daemon_no_lock_and_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path / "locks"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    socket = tmp_path / "boards.sock"
    address = f"unix:{socket}"
    with MockServer() as mock:
        monkeypatch.setenv("LORA_VRTD_SOCKET", str(mock.socket))
        for ended_by in ("SIGKILL", "its end"):  # the second one finds all free
            with keeper(address, *mock.uris) as (process, daemon):
                assert [holder(uri) for uri in mock.uris] == [daemon] * len(mock.uris)
                assert [one.name for one in daemon_status(address)] == list(mock.uris)
                if ended_by == "SIGKILL":
                    process.send_signal(signal.SIGKILL)
                else:
                    process.communicate("\n")
            until(lambda: not Path(f"/proc/{daemon}").exists())
            assert [holder(uri) for uri in mock.uris] == [None] * len(mock.uris)
            assert not socket.exists()
            assert not list(tmp_path.glob("lora-boardd-*")), os.listdir(tmp_path)
