"""Clients of the mock server for vrtd as subprocesses. A preloaded library simulates the card."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lora_host.vrtd_mock.process import MockServer
from tests.processes import environment

OVERLAY = "lora_f_v80"
SOURCE = Path(__file__).parent / "slash_card.c"


def build_card(folder: Path) -> Path:
    """The library that makes DMA wrap and the done bit clear, or a visible skip without gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    library = folder / "slash_card.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", library, SOURCE, "-ldl"], check=True)
    return library


def start_client(
    code: str, mock_server: MockServer, *arguments: str, **more: str
) -> subprocess.Popen[str]:
    """Python code as a client of the mock server."""
    variables = {**environment(), "LORA_VRTD_SOCKET": str(mock_server.socket), **more}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_client(code: str, mock_server: MockServer, *arguments: str, **more: str) -> str:
    """The code's output. Fails with its stderr if the code fails."""
    process = start_client(code, mock_server, *arguments, **more)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out
