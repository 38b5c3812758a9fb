"""The device process when its host was killed, and the emulation's folder when its owner was."""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.held_folder import LOCK_NAME, REMOVED, XRT, HeldFolder, remove_stale, remove_unheld
from tests.processes import environment

NAME = "device0_1"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An emulation's folder, in a temporary one whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        held = HeldFolder(XRT)
        yield held.path
        held.remove()


def device_process(folder: Path) -> subprocess.Popen[str]:
    variables = {
        **environment(),
        "LORA_EMULATION_DIR": str(folder),
        "EMULATION_SOCKETID": NAME,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "lora_host.device_process"],
        env=variables,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_host_that_is_gone_before_it_listens(folder: Path) -> None:
    process = device_process(folder)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # it waits while there is a folder
    shutil.rmtree(folder)
    assert process.communicate(timeout=10)[1] == "" and process.returncode == 0


def test_a_host_that_is_killed_before_the_cluster_process_is_there(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as host, (folder / "cluster.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # keeps the device process from starting it
        host.bind(str(folder / NAME))
        host.listen()
        process = device_process(folder)
        host.settimeout(20)
        host.accept()[0].close()
        shutil.rmtree(folder)
    assert process.communicate(timeout=10)[1] == "" and process.returncode == 0


def test_a_session_that_fails_is_one_line(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(str(folder / NAME))
        host.listen()
        (folder / "cluster.lock").mkdir()
        process = device_process(folder)
        error = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert error.startswith("board 0: no session with its host: ") and error.count("\n") == 1


def test_a_held_folder_is_not_removed(folder: Path) -> None:
    assert not remove_unheld(folder)
    remove_stale(XRT)
    assert (folder / LOCK_NAME).exists()


def test_the_next_start_removes_the_folders_of_killed_owners(folder: Path) -> None:
    code = (
        "import lora_host.held_folder as f, os; "
        "print(f.HeldFolder(f.XRT).path, flush=True); os.abort()"
    )
    variables = {**environment(), "TMPDIR": str(folder.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    left = Path(done.stdout.strip())
    half = left.with_suffix(REMOVED)  # of one that was killed while it removed
    half.mkdir()
    assert left.is_dir() and left.parent == folder.parent
    remove_stale(XRT)
    assert not left.exists() and not half.exists() and folder.exists()


def test_a_process_that_inherits_the_lock_keeps_the_folder(folder: Path) -> None:
    held = HeldFolder(XRT)
    child = subprocess.Popen(["sleep", "60"], pass_fds=(held.descriptor,))
    try:
        held._lock.close()  # as its owner's end would
        assert not remove_unheld(held.path)
    finally:
        child.kill()
        child.wait()
    assert remove_unheld(held.path) and not held.path.exists()
