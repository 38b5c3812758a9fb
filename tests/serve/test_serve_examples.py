"""The files in examples/serve."""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from lora_sdk.cli.serve import serve
from tests.served import Served

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "serve"


def check_command(words: list[str]) -> None:
    """Parsed by the command itself, unless a flag or a value is wrong."""
    assert Path(words[0]).name == "lora" and words[1] == "serve"
    serve.make_context("serve", words[2:])


def test_the_unit_starts_the_server() -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FOLDER / "lora-serve.service")
    check_command(shlex.split(unit["Service"]["ExecStart"]))
    drain = unit["Service"]["ExecStart"].split("--drain-timeout ")[1]
    assert int(unit["Service"]["TimeoutStopSec"]) > int(drain)


def test_the_container_starts_the_server() -> None:
    (line,) = [
        line for line in (FOLDER / "Containerfile").read_text().splitlines() if "CMD" in line
    ]
    words = json.loads(line.removeprefix("CMD "))
    check_command(words)
    assert "--api-key-file" in words  # it listens beyond loopback


def test_the_requests_are_answered(server: Served, program: Callable[[str], str]) -> None:
    program("curl")
    done = subprocess.run(
        [FOLDER / "requests.sh", server.url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"object":"list"' in done.stdout and "data: [DONE]" in done.stdout
    assert done.stdout.count('"text_completion"') >= 3
