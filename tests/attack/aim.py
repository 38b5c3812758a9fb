"""`lora serve` in a process of its own, and what the system says of it."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.adapter_folders import Folder, write_adapter
from tests.commands import LORA
from tests.processes import environment
from tests.serve.test_serve_tools import TEMPLATES
from tests.served import chat_model, eventually
from tests.variants import variant

HOSTILE, GOOD = "hostile-" + "h" * 16, "good-" + "g" * 16
DESCRIPTORS = 512
SECONDS = 60.0  # for an answer, on a busy machine; no answer then is a finding
START_SECONDS = 900.0  # on a machine that gives it a fiftieth of a core
LONGEST = 8 << 20  # bytes of an answer


@dataclass(frozen=True)
class Reply:
    """An answer: its status, 0 if the connection ended without one, and its body."""

    status: int
    body: bytes


class Aim:
    """The server under attack. Hostile clients come from 127.0.0.1, the good one from
    127.0.0.2."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self._read = 0

    def connect(self, address: str = "127.0.0.1", seconds: float = SECONDS) -> socket.socket:
        """A connection from this address."""
        there = ("127.0.0.1", self.port)
        return socket.create_connection(there, seconds, source_address=(address, 0))

    def ask(self, request: bytes, address: str = "127.0.0.1", seconds: float = SECONDS) -> Reply:
        """The answer to a request that ends its connection. TimeoutError without one."""
        with self.connect(address, seconds) as client:
            with suppress(ConnectionError):
                client.sendall(request)
            return parse(received(client, seconds))

    def post(self, path: str, body: bytes, key: str = HOSTILE, address: str = "127.0.0.1") -> Reply:
        """The answer to a JSON body."""
        return self.ask(posted(path, body, key), address)

    def get(self, path: str, address: str = "127.0.0.2") -> Reply:
        """The answer to GET, with the good client's key."""
        head = f"GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {GOOD}\r\n"
        return self.ask(f"{head}connection: close\r\n\r\n".encode(), address)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    @property
    def is_idle(self) -> bool:
        """Whether no request runs or waits."""
        found = json.loads(self.get("/status").body)["requests"]
        return not found["running"] and not found["waiting"]

    @property
    def descriptors(self) -> int:
        """Open descriptors of the process."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def megabytes(self, field: str) -> float:
        """VmRSS, or VmHWM since `forget_peak`."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split(f"{field}:")[1].split()[0]) / 1024

    def forget_peak(self) -> None:
        """VmHWM begins anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def new_log(self) -> str:
        """What was logged since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            data = file.read(LONGEST)
        self._read += len(data)
        return data.decode("utf-8", "replace")

    def processor_seconds(self) -> float:
        """Of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def posted(path: str, body: bytes, key: str = HOSTILE) -> bytes:
    """A request with a JSON body that ends its connection."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def received(client: socket.socket, seconds: float = SECONDS) -> bytes:
    """All that comes until the end. TimeoutError if that takes longer."""
    end, parts, size = time.monotonic() + seconds, [], 0
    with suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
            size += len(part)
            if time.monotonic() > end or size > LONGEST:
                raise TimeoutError(f"{size} bytes of an answer without an end")
    return b"".join(parts)


def parse(data: bytes) -> Reply:
    """The last answer of what came."""
    head, _, body = data.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 1"):
        head, _, body = body.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", head)
    return Reply(int(found[1]) if found else 0, body)


@contextmanager
def aimed(folder: Path, *more: str) -> Iterator[Aim]:
    """A ready server in an empty folder, with two keys and a folder of adapters."""
    model = chat_model(folder, TEMPLATES["hermes"])
    adapters = folder / "adapters"
    adapters.mkdir()
    write_adapter(variant("llama_narrow"), Folder("plain"), adapters / "other")
    (adapters / "outside").symlink_to("/etc")
    os.mkfifo(adapters / "fifo")
    keys, log = folder / "keys", folder / "log"
    keys.write_text(f"{HOSTILE}\n{GOOD}\n")
    words = [
        "--model", model, "--port", 0, "--api-key-file", keys, "--adapter-root", adapters,
        "--max-adapters", 1, "--max-adapter-rank", 8, "--context", 256, "--max-queue", 32,
        "--request-timeout", 30, "--body-timeout", 2, *more,
    ]  # fmt: skip
    code = [sys.executable, "-c", LORA, "serve", *map(str, words)]
    with log.open("wb") as file, subprocess.Popen(code, stderr=file, env=environment()) as child:
        try:
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            eventually(
                lambda: b" ready" in log.read_bytes() or child.poll() is not None, START_SECONDS
            )
            assert child.poll() is None and b" ready" in log.read_bytes(), log.read_text()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", log.read_text())
            assert found is not None
            yield Aim(child, int(found[1]), log)
        finally:
            child.kill()


def within(condition: Callable[[], Any], seconds: float) -> bool:
    """Whether it becomes true in time; looks four times a second."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.25)
    return True
