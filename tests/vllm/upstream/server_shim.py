"""In place of `tests/utils.py` of vLLM's own tests: their RemoteOpenAIServer on emulated boards,
with lengths, types and ranks of the demo model. Only what the chosen files use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.request import urlopen

import openai

START_S = 400
OTHERS = ("--max-model-len", "--dtype", "--max-lora-rank", "--max-num-seqs")
"""Options whose values are of vLLM's test models."""


class RemoteOpenAIServer:
    """vLLM's API server of the model."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model: str, words: Sequence[str], **more: Any) -> None:
        """`more`: what else vLLM's class knows, of which the chosen files use the environment."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.host, self.port = "127.0.0.1", int(listening.getsockname()[1])
        self.show_hidden_metrics = any("show-hidden-metrics" in word for word in words)
        kept, skip = [], False
        for word in words:
            if not skip and word not in OTHERS:
                kept.append(word)
            skip = word in OTHERS
        kept += ["--port", str(self.port), "--model", model]
        if "--enable-lora" in kept:
            kept += ["--max-lora-rank", "8"]
        self.proc = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *kept],
            start_new_session=True, env={**os.environ, **(more.get("env_dict") or {})},
        )  # fmt: skip
        end = time.monotonic() + START_S
        while True:
            if self.proc.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError("the server does not answer")
            try:
                urlopen(self.url_for("health"), timeout=5).close()
                return
            except OSError:
                time.sleep(0.5)

    def __enter__(self) -> RemoteOpenAIServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.proc.poll() is None:
            os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.wait()

    @property
    def url_root(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts: str) -> str:
        return "/".join([self.url_root, *parts])

    def get_client(self, **more: Any) -> openai.OpenAI:
        more.setdefault("timeout", 600)
        return openai.OpenAI(
            base_url=self.url_for("v1"), api_key=self.DUMMY_API_KEY, max_retries=0, **more
        )

    def get_async_client(self, **more: Any) -> openai.AsyncOpenAI:
        more.setdefault("timeout", 600)
        return openai.AsyncOpenAI(
            base_url=self.url_for("v1"), api_key=self.DUMMY_API_KEY, max_retries=0, **more
        )
