"""A server in a thread of the test's process, on its own socket, and clients."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from openai import OpenAI

from lora_sdk import Engine, demo_model_path
from lora_sdk.serve.backend import Backend, EngineBackend
from lora_sdk.serve.lifecycle import State
from lora_sdk.serve.server import Server, listen
from lora_sdk.serve.settings import Settings
from tests.commands import LORA
from tests.processes import environment

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
QWEN = (
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>",
)  # fmt: skip
"""Tokens around text in the middle, as Qwen2.5-Coder has them."""


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: Any


class Served:
    """A running server of `engine`."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.service = server.service
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def engine(self) -> Engine:
        engine = self.service.engine
        assert isinstance(engine, Engine)
        return engine

    def client(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    def get(self, path: str, **headers: str) -> Reply:
        return self._ask(Request(self.url + path, headers=headers))

    def post(self, path: str, body: object, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}
        return self._ask(Request(self.url + path, data=data, headers=headers))

    def _ask(self, request: Request) -> Reply:
        try:
            with urlopen(request, timeout=60) as got:
                return self._reply(got)
        except HTTPError as error:
            with error:
                return self._reply(error)

    @staticmethod
    def _reply(got: Any) -> Reply:
        raw = got.read()
        headers = {name.lower(): value for name, value in got.headers.items()}
        is_json = headers.get("content-type", "").startswith("application/json")
        return Reply(got.status, headers, json.loads(raw) if is_json else raw.decode())

    def engine_tokens(self, messages: list[Any], tools: list[Any] | None = None) -> int:
        """Tokens of the prompt that `/tokenize` makes of messages, and of tools where they are
        given."""
        more = {} if tools is None else {"tools": tools}
        return int(self.post("/tokenize", {"messages": messages, **more}).body["count"])

    def settled(self) -> bool:
        """Whether no request holds resources on the boards."""
        gate = self.service.gate
        free = self.engine._cache.free_sequences
        return gate.running == gate.waiting == 0 and free == self.engine.plan.max_sequences


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether `condition` becomes true before a timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def served(open_engine: Callable[[Any], Engine], **settings: Any) -> AbstractContextManager[Served]:
    """A ready server of this engine. It is drained at the end."""
    return served_backend(lambda progress: EngineBackend(open_engine(progress)), **settings)


@contextmanager
def served_backend(open_backend: Callable[[Any], Backend], **settings: Any) -> Iterator[Served]:
    """A ready server of this backend. It is drained at the end."""
    chosen = Settings(**{"names": ("demo",), "port": 0, "drain_timeout": 5.0, **settings})
    server = Server(chosen, open_backend)
    with listen(chosen) as listener:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=lambda: loop.run_until_complete(server.run(listener)))
        thread.start()
        try:
            lifecycle = server.service.lifecycle
            assert eventually(lambda: lifecycle.state is not State.LOADING, 60)
            yield Served(server, listener.getsockname()[1])
        finally:
            loop.call_soon_threadsafe(server.stop)
            thread.join(60)
            assert not thread.is_alive()
            loop.close()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], OpenAI]]:
    """`lora serve` on a free port, ready, and a client of it."""
    code = [sys.executable, "-c", LORA, "serve", "--port", "0", *arguments]
    with subprocess.Popen(code, stderr=subprocess.PIPE, text=True, env=environment()) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            found = re.search(r"listening on (http://127\.0\.0\.1:\d+)$", line)
            assert found, line
            client = OpenAI(base_url=f"{found.group(1)}/v1", api_key="-", max_retries=0, timeout=60)
            assert "ready" in child.stderr.readline()
            yield child, client
        finally:
            child.kill()


def chat_model(folder: Path, template: str = TEMPLATE) -> Path:
    """The demo model with another chat template."""
    model = _demo_in(folder / "chat")
    (model / "chat_template.jinja").write_text(template)
    return model


def completion_model(folder: Path) -> Path:
    """The demo model without its chat template."""
    model = _demo_in(folder / "demo")
    path = model / "tokenizer_config.json"
    values = json.loads(path.read_text())
    del values["chat_template"]
    path.write_text(json.dumps(values))
    return model


def fim_model(folder: Path, *names: str) -> Path:
    """The demo model with further special tokens in place of its last ones."""
    model = _demo_in(folder / "fim")
    path = model / "tokenizer.json"
    values = json.loads(path.read_text())
    vocabulary, merges = values["model"]["vocab"], values["model"]["merges"]
    ids = {token: text for text, token in vocabulary.items()}
    for token, name in enumerate(names, len(ids) - len(names)):
        del vocabulary[ids[token]]
        vocabulary[name] = token
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        values["added_tokens"].append({"id": token, "content": name, "special": True, **plain})
    del merges[len(merges) - len(names) :]  # those that made these tokens
    path.write_text(json.dumps(values))
    return model


def _demo_in(model: Path) -> Path:
    model.mkdir()
    for file in demo_model_path().iterdir():
        if file.is_file():
            shutil.copy(file, model / file.name)
    return model
