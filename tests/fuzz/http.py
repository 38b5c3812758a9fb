"""Requests to `lora serve`, as bytes on a connection, answered by the real server and a small
model."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import h11

from lora_sdk import Engine
from tests.fuzz import structure
from tests.fuzz.target import Fault, Target
from tests.serve.test_serve_mutations import CUT_SHORT, HEADERS, SEEDS
from tests.served import chat_model, served

SECONDS = 30.0  # without an answer is a hang
LOUD = logging.ERROR


class _Errors(logging.Handler):
    """What the server logs as an error."""

    def __init__(self) -> None:
        super().__init__(LOUD)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() != CUT_SHORT:  # the body broke its own framing
            self.found.append(record.getMessage())


def request(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """A request that ends its connection."""
    fields = {"host": "a", "content-type": "application/json", "connection": "close",
              "content-length": str(len(body)), **(headers or {})}  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def http(folder: Path) -> Target:
    """All paths. A refusal is an answer of 4xx; an answer of 5xx is a fault."""
    stack = ExitStack()
    model = chat_model(folder)
    server = stack.enter_context(
        served(
            lambda progress: Engine(model, progress=progress, context=64, max_adapters=1,
                                    max_adapter_rank=8),
            adapter_root=str(folder), request_timeout=5.0, body_timeout=1.0,
        )
    )  # fmt: skip
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    stack.callback(logging.getLogger().removeHandler, errors)

    def read(data: bytes) -> None:
        answer = _answer(server.port, data)
        if errors.found:
            raise Fault(f"the server logged {errors.found.pop()!r:.300}")
        status = answer[9:12]
        if status >= b"5" or b"Traceback" in answer[:4096] or b'"server_error"' in answer[:4096]:
            raise Fault(f"answered {answer[:300]!r}")
        if not status.startswith(b"2"):
            raise _Refused

    def mutate(random: Random, data: bytes) -> bytes:
        head, gap, body = data.partition(b"\r\n\r\n")
        path = head.split(b" ")[1:2]
        if not gap or not path or not path[0].isascii():
            return structure.of_text(random, data)
        if random.random() < 0.1:
            return structure.of_text(random, head) + gap + body
        headers = random.choice(HEADERS) if random.random() < 0.1 else {}
        return request(path[0].decode("ascii"), structure.of_json(random, body), headers)

    seeds = [request(path, json.dumps(body).encode()) for path, body in SEEDS]
    seeds += [b"GET %s HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % path
              for path in (b"/", b"/status", b"/metrics", b"/v1/models", b"/health")]  # fmt: skip
    return Target(read, lambda: seeds, mutate, stack.close, refusals=(_Refused,))


class _Refused(Exception):
    """An answer that is no success."""


def _is_whole(data: bytes) -> bool:
    """Whether the server has a whole request in these bytes."""
    reader = h11.Connection(h11.SERVER)
    kinds: set[type] = set()
    with suppress(h11.RemoteProtocolError):
        if data:  # none would be the stream's end
            reader.receive_data(data)
        while isinstance(event := reader.next_event(), h11.Event):
            kinds.add(type(event))
            if kinds & {h11.EndOfMessage, h11.ConnectionClosed}:
                break
    return h11.EndOfMessage in kinds


def _answer(port: int, data: bytes) -> bytes:
    """Its bytes; b"" if the server closes without one. The connection's end is the client's while a
    request is not whole, else the server's: a client that has closed is not answered."""
    parts: list[bytes] = []
    whole = _is_whole(data)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            try:
                while part := connection.recv(1 << 16):
                    parts.append(part)
                    if whole and len(parts) == 1:  # it may be kept open for another request
                        connection.shutdown(socket.SHUT_WR)
            except TimeoutError:
                raise Fault(f"no end within {SECONDS:g} s") from None
    return b"".join(parts)


HTTP: dict[str, Callable[[Path], Target]] = {"http": http}
