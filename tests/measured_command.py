"""A command's peak of memory. It starts from a small process: the kernel gives a new program's peak
as at least that of the process which started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryFile

from tests.processes import environment


@dataclass(frozen=True)
class Measured:
    """`peak`: the most bytes of memory at once."""

    returncode: int
    stdout: bytes
    stderr: bytes
    peak: int


def measured(code: str, *arguments: object, timeout: float) -> Measured:
    """A Python program with arguments."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    with TemporaryFile() as out, TemporaryFile() as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.measured_command", json.dumps(words)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(),
            start_new_session=True,
        )  # fmt: skip
        try:
            returncode = started.wait(timeout)
        finally:  # also the program that it started
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
        out.seek(0)
        err.seek(0)
        text, _, peak = out.read().rpartition(b"\n")
        assert peak, err.read().decode()
        return Measured(returncode, text, err.read(), int(peak))


def main(words: list[str]) -> int:
    """Runs it; the last line of stdout is its peak."""
    started = subprocess.Popen(words)
    _, status, used = os.wait4(started.pid, 0)
    print(f"\n{used.ru_maxrss << 10}", end="", flush=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
