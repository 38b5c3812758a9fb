"""`lora batch --ray`: each line once, in order, whatever is killed; and the commands around it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lora_sdk import Engine, SamplingParams
from tests.commands import LORA
from tests.processes import environment
from tests.replicas.conftest import RayNodes

pytestmark = pytest.mark.ray
LINES, KINDS = 2000, 37
FLAGS = ("--context", "128", "--max-sequences", "8", "--threads", "1", "--speculative", "off")


def line(index: int) -> dict[str, Any]:
    """One of KINDS lines; their order shows in their results."""
    kind = index % KINDS
    return {
        "prompt": f"x{kind} = [{kind}, ",
        "max_tokens": 1 + kind % 4,
        "temperature": 0.8 * (kind % 3 > 0),
        "seed": kind,
    }


def outputs(entry: dict[str, Any]) -> list[Any]:
    return [(one["text"], one["finish_reason"], one["token_ids"]) for one in entry["outputs"]]


def texts_in(file: Path) -> list[list[Any]]:
    return [outputs(json.loads(entry)) for entry in file.read_text().splitlines()]


def started(*words: object) -> subprocess.Popen[str]:
    code = [sys.executable, "-c", LORA, *map(str, words)]
    return subprocess.Popen(
        code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def count(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def until(file: Path, lines: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 600
    while count(file) < lines:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


def test_each_line_once_with_two_kills(nodes: RayNodes, tmp_path: Path) -> None:
    prompts, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps(line(index)) for index in range(LINES)]
    lines[1234] = '{"tokens": [], "max_tokens": 2}'
    prompts.write_text("\n".join(lines))
    words = ("batch", prompts, out, *FLAGS, "--ray", "--replicas", 3)
    words = (*words, "--ray-address", nodes.address, "--ray-token-file", nodes.token)
    journal = tmp_path / "out.jsonl.partial"
    with started(*words) as first:
        until(journal, LINES // 5, first)
        nodes.end_replica(1)
        until(journal, LINES // 2, first)
        first.send_signal(signal.SIGKILL)
    kept = count(journal) - 1
    assert LINES // 2 - 1 <= kept < LINES and not out.exists()
    with started(*words) as second:
        _, told = second.communicate(timeout=600)
    assert second.returncode == 1 and "1 of 2000 lines" in told and "line 1235" in told
    assert f"{kept} of them from before" in told
    entries = [json.loads(one) for one in out.read_text().splitlines()]
    assert [entry["index"] for entry in entries] == list(range(LINES))
    assert not journal.exists()
    assert "the prompt is empty" in entries.pop(1234)["error"]
    with Engine(threads=1) as engine:
        known = [line(kind) for kind in range(KINDS)]
        params = [
            SamplingParams(**{k: v for k, v in one.items() if k != "prompt"}) for one in known
        ]
        results: Any = engine.generate([one["prompt"] for one in known], params)
    expected = [json.loads(json.dumps(result.as_dict())) for result in results]
    for entry in entries:
        assert outputs(entry) == outputs(expected[entry["index"] % KINDS]), entry["index"]


def below(token: str) -> list[str]:
    """Processes that name the folder of a node in their command line or environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text()
            if (
                pid != str(os.getpid())
                and token in words + Path(f"/proc/{pid}/environ").read_text()
            ):
                found.append(words)
        except OSError:
            continue
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of programs; Ray's sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="r") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        yield Path(folder)


def test_a_node_is_started_used_and_stopped(short: Path, tmp_path: Path) -> None:
    """The commands, which leave no process and no file."""
    try:
        prompts, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        prompts.write_text("\n".join(json.dumps(line(index)) for index in range(5)))
        daemon = f"unix:{short}/b.sock"
        done = run(
            "ray", "start", "--emulated", "u280=2", "--boardd", daemon, "--port", 0, "--json"
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        token = Path(told["token_file"])
        assert token.stat().st_mode & 0o077 == 0 and told["address"].startswith("127.0.0.1:")
        assert loopback_alone(int(told["address"].rpartition(":")[2]))
        shown = json.loads(run("ray", "status", "--json").stdout)
        assert shown["free"] == {"u280": 2} and len(shown["nodes"]) == 1
        few = run("batch", prompts, out, *FLAGS, "--ray", "--replicas", 2, "--boards", 2)
        assert (
            few.returncode == 1 and "2 replicas need 2 boards (u280) of one node each" in few.stderr
        )
        assert run("batch", prompts, out, *FLAGS, "--ray", "--replicas", 2).returncode == 0
        assert count(out) == 5
        assert [set(one) for one in shown["daemons"]] == [{"address", "node"}]  # it does not run
        behind = ("--boardd", daemon, "--boards", 2)
        assert run("batch", prompts, tmp_path / "b", *FLAGS, "--ray", *behind).returncode == 0
        assert texts_in(tmp_path / "b") == texts_in(out) and not (short / "b.sock").exists()
        assert "stopped the Ray node" in run("ray", "stop").stdout
        assert not below(str(token.parent)) and not list(short.glob("lora-ray*"))
        assert run("ray", "status").returncode == 1
    finally:
        run("ray", "stop")


def loopback_alone(port: int) -> bool:
    """Whether a listening socket with this port accepts connections from this computer alone."""
    found = []
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(file).read_text().splitlines()[1:]:
            address, number = row.split()[1].split(":")
            if int(number, 16) == port and row.split()[3] == "0A":
                found.append(address)
    assert found
    return all(one.endswith("0100007F") for one in found)


def test_a_server_with_its_own_cluster_leaves_nothing(short: Path) -> None:
    """Ctrl-C while replicas run."""
    with started("serve", "--ray", "--replicas", 1, "--port", 0, *FLAGS) as server:
        assert server.stderr is not None
        told = [server.stderr.readline(), server.stderr.readline()]
        assert "listening on" in told[0] and "ready" in told[1]
        folder = next(short.glob("lora-ray*"))
        assert below(str(folder))
        server.send_signal(signal.SIGINT)
        assert server.wait(300) == 0
    assert not below(str(folder)) and not list(short.glob("lora-ray*"))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    code = [sys.executable, "-c", LORA, *map(str, words)]
    return subprocess.run(code, capture_output=True, text=True, env=environment(), timeout=600)
