"""The mock server in the background of a shell, whose terminal it may not read."""

from __future__ import annotations

import os
import pty
import signal
import socket
import sys
import time
from pathlib import Path

from tests.emu.test_vrtd_answers import ask
from tests.processes import environment

SHELL = 'set -m; "$0" -m lora_host.vrtd_mock --socket "$1" --boards 1 & read -r word'
READS_S = 0.5  # after "ready" it reads its terminal, and SIGTTIN would stop it


def test_a_shells_background_does_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    child, master = pty.fork()
    if child == 0:
        os.execvpe("bash", ["bash", "-c", SHELL, sys.executable, str(path)], environment())
    try:
        said = b""
        while b"ready 0000:21:00.0" not in said:
            said += os.read(master, 4096)
        time.sleep(READS_S)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as here:
            here.settimeout(10)
            here.connect(str(path))
            assert ask(here, 0, "B", 0)[0] == 0
    finally:
        os.kill(child, signal.SIGKILL)  # the server ends with its parent
        os.waitpid(child, 0)
        os.close(master)
