"""Runs the command lines as subprocesses."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import environment

RUN = "from lora_sdk.cli.run import main; main()"
LORA = "from lora_sdk.cli.main import main; main()"


def command(code: str, *arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    """A Python program with arguments; `more` is for subprocess.run."""
    return subprocess.run(
        [sys.executable, "-c", code, *(a if isinstance(a, bytes) else str(a) for a in arguments)],
        capture_output=True,
        timeout=60,
        env=environment(),
        **more,  # type: ignore[call-overload]
    )


def lora_run(*arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    """`lora-run` with arguments."""
    return command(RUN, *arguments, **more)


def one_line_error(done: subprocess.CompletedProcess[bytes], *parts: str) -> str:
    """The single line on stderr of a command that failed, stdout empty."""
    text = done.stderr.decode()
    assert done.returncode in (1, 2) and done.stdout == b""
    assert text.count("\n") == 1 and "Traceback" not in text, text
    for part in parts:
        assert part in text, text
    return text
