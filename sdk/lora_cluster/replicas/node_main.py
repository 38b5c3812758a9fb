"""The process that runs one Ray node, and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_SECONDS = 15.0  # in which Ray's own processes end
DAEMON_SECONDS = 2.0  # in which board daemons give their boards back

START = "import sys; from ray.scripts.scripts import main; sys.argv[0] = 'ray'; main()"


def main(folder: Path, bound: bool) -> int:
    """Run `ray start` with the arguments of `arguments.json` in `folder` until SIGTERM, then end
    every process of it and remove the folder. `bound`: end with the parent too."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what Ray loses becomes a child of this process
    if bound:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it ended before
            stop.set()
    arguments = json.loads((folder / "arguments.json").read_text())
    try:
        with (folder / "log").open("wb") as log:
            ray = subprocess.Popen(
                [sys.executable, "-c", START, "start", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
            )
        while ray.poll() is None and not stop.wait(0.2):
            pass
        if ray.poll() is None:
            ray.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                ray.wait(END_SECONDS)
        _end_children()
        return 0 if stop.is_set() else 1
    finally:
        if stop.is_set():  # else somebody reads the log
            shutil.rmtree(folder, ignore_errors=True)


def _end_children() -> None:
    """Kill all processes below this one, those that were started meanwhile too."""
    began = time.monotonic()
    while (left := _children()) and (past := time.monotonic() - began) < END_SECONDS:
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM if past < DAEMON_SECONDS else signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _children() -> list[int]:
    """Direct children; the others become direct ones as their parents end."""
    me = os.getpid()
    text = Path(f"/proc/{me}/task/{me}/children").read_text()
    return [int(word) for word in text.split()]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--bound" in sys.argv[2:]))
