"""Runs the command lines as processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.forked_process import forked
from tests.processes import environment

RUN = "from lora_sdk.cli.run import main; main()"
LORA = "from lora_sdk.cli.main import main; main()"


def command(
    code: str, *arguments: object, cwd: Path | None = None, input: bytes | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """A Python program with arguments, as by subprocess.run, in at most `timeout` seconds."""
    words = [a if isinstance(a, bytes) else str(a) for a in arguments]
    if code in (RUN, LORA):
        return forked(code, words, environment(), cwd, input, timeout)
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True, env=environment(), cwd=cwd, input=input,
        timeout=timeout,
    )  # fmt: skip


def lora_run(
    *arguments: object, input: bytes | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """`lora-run` with arguments."""
    return command(RUN, *arguments, input=input, timeout=timeout)


def one_line_error(done: subprocess.CompletedProcess[bytes], *parts: str) -> str:
    """The single line on stderr of a command that failed, stdout empty."""
    text = done.stderr.decode()
    assert done.returncode in (1, 2) and done.stdout == b""
    assert text.count("\n") == 1 and "Traceback" not in text, text
    for part in parts:
        assert part in text, text
    return text
