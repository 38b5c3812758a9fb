"""Ray nodes for all tests of replicas."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from lora_cluster.replicas.connection import use_loopback, use_token
from lora_cluster.replicas.node import ENVIRONMENT
from lora_host.boardd.keys import write_keys
from tests.processes import environment

PROGRAM = Path(__file__).with_name("cluster_main.py")
TWO = {"u280": ["emu:u280"] * 2}
WITHOUT = {"v80": ["slash:0000:99:00.0"]}  # no computer has this board


@dataclass
class RayNodes:
    """Three nodes with two emulated boards each, which daemons may serve. The first one stays."""

    address: str
    token: Path
    ids: list[str]
    daemons: list[str]
    _input: IO[str]
    _output: IO[str]

    def end_node(self, node: str) -> None:
        """Kill all processes of a node."""
        self._tell("node", node)

    def end_replica(self, index: int) -> None:
        """Kill a replica's process."""
        self._tell("replica", str(index))

    def _tell(self, *words: str) -> None:
        self._input.write(" ".join(words) + "\n")
        self._input.flush()
        assert "ended" in json.loads(self._output.readline())


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token of all clusters: Ray reads it once."""
    file = tmp_path_factory.mktemp("ray") / "token"
    file.write_text(secrets.token_hex(32))
    return file


def free_address() -> str:
    """Of a board daemon, on loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp:127.0.0.1:{one.getsockname()[1]}"


@pytest.fixture(scope="session")
def nodes(request: pytest.FixtureRequest, token: Path) -> Iterator[RayNodes]:
    if importlib.util.find_spec("ray") is None:
        if request.config.getoption("--require-ray"):
            pytest.fail("--require-ray, but ray is not installed")
        pytest.skip("ray is not installed")
    os.environ.update(ENVIRONMENT)
    use_token(token)
    use_loopback("127.0.0.1:0")
    write_keys(token.with_name("keys"), ["127.0.0.1"])
    os.environ["LORA_BOARDD_KEYS"] = str(token.with_name("keys") / "127.0.0.1")
    daemons = [free_address() for _ in range(3)]
    boards = json.dumps(
        [
            {"boards": boards, "daemon": daemon}
            for boards, daemon in zip(({**TWO, **WITHOUT}, TWO, TWO), daemons, strict=True)
        ]
    )
    log = token.with_name("nodes")
    with log.open("w") as errors, subprocess.Popen(
        [sys.executable, str(PROGRAM), boards],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        env=environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, log.read_text()[-2000:]
            told = json.loads(line)
            found = (told["address"], token, told["nodes"], daemons)
            yield RayNodes(*found, process.stdin, process.stdout)
        finally:
            process.stdin.close()
            process.wait(300)
