"""Clients that mean to stop the server: large bodies, connections that are held, two lengths."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lora_sdk import Engine
from lora_sdk.serve import receiving as receiving_module
from lora_sdk.serve import server as server_module
from lora_sdk.serve import service as service_module
from lora_sdk.serve.body import StreamedFields
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.completions import CompletionBody
from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.json_text import MAX_VALUES, read_json
from lora_sdk.serve.responses import ResponseBody
from lora_sdk.serve.settings import digest
from lora_sdk.serve.tokenizing import DetokenizeBody, TokenizeBody
from tests.commands import LORA
from tests.processes import environment
from tests.served import Served, eventually, served

KEY = "k" * 32
SECONDS = 0.5
MANY = 100_000


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    """A server with a key, short timeouts and room for 16 connections, 12 of one address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "_MOST_CONNECTIONS", 16)
        with served(
            lambda progress: Engine(progress=progress), keys=(digest(KEY),), body_timeout=SECONDS
        ) as running:
            yield running


def connected(port: int, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(address, 0))


def until_closed(client: socket.socket) -> bytes:
    """All that comes."""
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def is_open(client: socket.socket) -> bool:
    try:
        client.setblocking(False)
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


HOSTILE: list[tuple[type[StreamedFields] | type[Any], dict[str, Any]]] = [
    (CompletionBody, {"prompt": [{}] * MANY}),
    (CompletionBody, {"prompt": [[{}] * MANY] * 2}),
    (CompletionBody, {"prompt": "a", "stop": [1] * MANY}),
    (CompletionBody, {"prompt": "a", "stop_token_ids": [{}] * MANY}),
    (CompletionBody, {"prompt": "a", "allowed_token_ids": ["a"] * MANY}),
    (CompletionBody, {"prompt": "a", "logit_bias": {str(i): {} for i in range(MANY)}}),
    (CompletionBody, {"prompt": "a", "guided_choice": [1] * MANY}),
    (ChatBody, {"messages": [{}] * MANY}),
    (ChatBody, {"messages": [{"role": "user", "content": [{}] * MANY}]}),
    (ChatBody, {"messages": [{"role": "assistant", "tool_calls": [{}] * MANY}]}),
    (ChatBody, {"messages": [{"role": "user", "content": "a"}], "tools": [{}] * MANY}),
    (ChatBody, {"messages": [{"role": "user", "content": "a", **{f"x{i}": 1 for i in range(MANY)}}],
                "n": "a"}),
    (ResponseBody, {"input": [{}] * MANY}),
    (ResponseBody, {"input": [{"role": "user", "content": [{}] * MANY}]}),
    (ResponseBody, {"input": "a", "metadata": {str(i): 1 for i in range(MANY)}}),
    (TokenizeBody, {"messages": [{}] * MANY}),
    (DetokenizeBody, {"tokens": [{}] * MANY}),
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("kind", "body"), HOSTILE, ids=[f"{kind.__name__}{i}" for i, (kind, _) in enumerate(HOSTILE)]
)
def test_a_check_ends_at_its_first_error(kind: Any, body: dict[str, Any], strict: bool) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body, context={"strict": strict})
    assert caught.value.error_count() <= 12


@pytest.mark.parametrize("item", ["{}", "[]", "1", '""', '{"a":1}', "[[1]]", '"\\"{"', '"\\\\"'])
def test_the_values_of_a_body_are_counted_before_they_are_made(item: str) -> None:
    with pytest.raises(ApiError, match=f"more than {MAX_VALUES}"):
        read_json(b"[" + ",".join([item] * (MAX_VALUES + 1)).encode() + b"]")


@pytest.mark.parametrize("depth", [150, 220, 300, 450])
def test_a_deep_schema_is_refused(locked: Served, depth: int) -> None:
    """What reads a schema calls itself for each level."""
    schema = '{"properties":{"a":' * depth + '{"not":{}}' + "}}" * depth
    tool = f'{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}'
    asked = f'{{"messages":[{{"role":"user","content":"a"}}],"tools":[{tool}],"max_tokens":2}}'
    got = locked.post("/v1/chat/completions", asked.encode(), authorization=f"Bearer {KEY}")
    assert got.status == 400 and got.body["error"]["message"] == "the body is nested too deeply"


@pytest.mark.parametrize("text", ["{[,", '\\"{', "\\\\", '\\\\\\",'])
def test_what_is_in_a_text_does_not_count(text: str) -> None:
    prompt = read_json(b'{"prompt": "' + text.encode() * MAX_VALUES + b'"}')["prompt"]
    assert prompt == json.loads(f'"{text}"') * MAX_VALUES


def test_two_lengths_are_refused_and_the_second_request_is_not_answered(
    locked: Served,
) -> None:
    hidden = b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n"
    for version in (b"1.1", b"1.0"):
        lengths = b"content-length: 5\r\n" if version == b"1.1" else b""
        with connected(locked.port) as client:
            client.sendall(
                b"POST /health HTTP/" + version + b"\r\nhost: a\r\n" + lengths
                + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
            )  # fmt: skip
            got = until_closed(client)
        assert got.startswith(b"HTTP/1.1 400 ") and got.count(b"HTTP/1.1 ") == 1, got
        assert b"connection: close" in got.lower()


@pytest.mark.parametrize("path", [b"/health", b"/v1/completions", b"/nowhere"])
def test_a_malformed_chunk_leaves_nothing_in_the_log(
    server: Served, caplog: pytest.LogCaptureFixture, path: bytes
) -> None:
    with caplog.at_level(logging.ERROR):
        with connected(server.port) as client:
            client.sendall(
                b"GET " + path + b" HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            )
            until_closed(client)
        assert server.get("/version").status == 200
    assert not caplog.records, caplog.records[0].getMessage()


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/v1/completions", b"/health", b"/nowhere"])
def test_an_answer_whose_body_is_unread_ends_the_connection(locked: Served, path: bytes) -> None:
    with connected(locked.port) as client:
        client.sendall(b"POST " + path + b" HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(60):
                client.sendall(b"x")
                time.sleep(0.1)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_dropped(locked: Served) -> None:
    with connected(locked.port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(SECONDS + 8)
        with pytest.raises(ConnectionError):  # not TimeoutError: the server ends it
            while True:
                client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 100)
    assert eventually(lambda: not locked.server._uvicorn.server_state.connections)


def test_the_oldest_connection_without_a_request_makes_room(locked: Served) -> None:
    state = locked.server._uvicorn.server_state
    assert eventually(lambda: not state.connections)
    with ExitStack() as opened:
        held = [opened.enter_context(connected(locked.port)) for _ in range(12)]
        assert eventually(lambda: len(state.connections) == 12)
        held += [opened.enter_context(connected(locked.port)) for _ in range(3)]
        assert eventually(lambda: not any(map(is_open, held[:3])))  # of one address
        assert all(map(is_open, held[3:])) and len(state.connections) == 12
        others = [opened.enter_context(connected(locked.port, f"127.0.0.{i}")) for i in range(2, 8)]
        assert eventually(lambda: not any(map(is_open, held[:5])))
        assert all(map(is_open, [*held[5:], *others])) and len(state.connections) == 16
        assert locked.get("/ready").status == 200


def test_a_full_server_says_so(locked: Served) -> None:
    state = locked.server._uvicorn.server_state
    assert eventually(lambda: not state.connections)
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer " + KEY.encode() + b"\r\ncontent-length: 9\r\n\r\n"
    )
    with ExitStack() as opened:
        for _ in range(12):
            opened.enter_context(connected(locked.port)).sendall(head)
        assert eventually(lambda: sum(not one.idle for one in state.connections) == 12)
        assert until_closed(opened.enter_context(connected(locked.port))).startswith(
            b"HTTP/1.1 503 "
        )
        with connected(locked.port, "127.0.0.2") as other:
            other.sendall(b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert until_closed(other).startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_large_body_that_does_not_come_is_a_timeout(locked: Served) -> None:
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer " + KEY.encode() + b"\r\ncontent-length: 100000\r\n\r\n"
    )
    with connected(locked.port) as client:
        client.sendall(head + b" " * 70_000)
        assert client.recv(12) == b"HTTP/1.1 408"


@contextmanager
def attacked(folder: Path, *arguments: str, files: int = 1024) -> Iterator[tuple[Any, int, Path]]:
    """`lora serve` with so many descriptors: (the process, its port, its log)."""
    log = folder / "log"
    code = [sys.executable, "-c", LORA, "serve", "--port", "0", *arguments]
    with log.open("w") as stderr, subprocess.Popen(code, stderr=stderr, env=environment()) as child:
        try:
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (files, files))
            assert eventually(lambda: " ready" in log.read_text(), 60), log.read_text()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", log.read_text())
            assert found
            yield child, int(found.group(1)), log
            assert child.poll() is None
        finally:
            child.kill()


def memory(process: int, field: str) -> float:
    """MB."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def health_seconds(port: int) -> float:
    """Of one answer."""
    began = time.monotonic()
    with connected(port) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert until_closed(client).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("item", [b"{},", b"1,", b'"a",', b"[[]],"])
def test_large_bodies_hold_up_nobody(tmp_path: Path, item: bytes) -> None:
    body = b'{"prompt":[' + item * (3_900_000 // len(item)) + b"{}]}"
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)

    def attack(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=200) as client:
            client.sendall(head + body)
            return until_closed(client)[:12]

    with attacked(tmp_path) as (child, port, _log), ThreadPoolExecutor(50) as pool:
        before = memory(child.pid, "VmRSS")
        attacks = [pool.submit(attack, port) for _ in range(50)]
        taken = []
        while not all(one.done() for one in attacks):
            taken.append(health_seconds(port))
        assert {one.result() for one in attacks} == {b"HTTP/1.1 400"}
        grown = memory(child.pid, "VmHWM") - before
    print(f"{len(taken)} answers, the last after {max(taken) * 1e3:.0f} ms, {grown:.0f} MB more")
    assert grown < 200


def test_large_bodies_are_parsed_beside_the_event_loop(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def watched(raw: bytearray) -> Any:
        threads.append(threading.current_thread().name)
        return read_json(raw)

    monkeypatch.setattr(receiving_module, "read_json", watched)
    for _ in range(2):
        assert server.post("/v1/completions", {"prompt": [{}] * 30_000}).status == 400
    assert set(threads) == {"lora-bodies_0"}


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize", "/v1/completions?"])
def test_a_large_body_gives_its_place_back(server: Served, path: str) -> None:
    """After an answer, an error, and once its prompt waits for the boards."""
    more = {"max_tokens": 1, "truncate_prompt_tokens": 4} if path == "/v1/completions" else {}
    body = {"prompt": "a " * 70_000, **more}
    for _ in range(8):  # more than there are places
        assert server.post(path, body).status == (400 if path[-1] == "?" else 200)
    gate = server.service.large_bodies
    assert eventually(lambda: gate.running == gate.waiting == 0)


def test_a_large_body_has_its_place_until_it_is_tokens(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, held = server.service.large_bodies, []
    encode, encoding = server.engine.tokenizer.encode, threading.Lock()

    def watched(text: str, special: bool = True, *more: int) -> list[int]:
        held.append((gate.running, gate.waiting))
        assert encoding.acquire(blocking=False)  # one at a time
        try:
            return encode(text, special, *more)
        finally:
            encoding.release()

    monkeypatch.setattr(server.engine.tokenizer, "encode", watched)
    with ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(server.post, "/tokenize", {"prompt": "a " * 70_000}) for _ in range(9)]
        assert {one.result().status for one in asked} == {200}
    assert len(held) == 9 and all(1 <= running <= 6 for running, _ in held)
    assert eventually(lambda: gate.running == gate.waiting == 0)


@pytest.mark.slow
def test_long_texts_become_tokens_one_at_a_time(tmp_path: Path) -> None:
    """A byte of a text can take 350 while it is encoded."""
    body = json.dumps({"prompt": "a." * (service_module._COUNTED // 2)}).encode()

    def attack(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=200) as client:
            client.sendall(
                b"POST /tokenize HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
                b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            return until_closed(client)[:12]

    with attacked(tmp_path) as (child, port, _log), ThreadPoolExecutor(12) as pool:
        before = memory(child.pid, "VmRSS")
        answers = list(pool.map(lambda _: attack(port), range(12)))
        assert answers == [b"HTTP/1.1 200"] * 12
        peak, held = (memory(child.pid, name) - before for name in ("VmHWM", "VmRSS"))
    print(f"{peak:.0f} MB more at the peak, {held:.0f} MB more held")
    assert peak < 250 and held < 100


WORDS = "a." * 140_000
LONG_PROMPTS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": WORDS}, "prompt"),
    ("/v1/completions", {"prompt": ["a", WORDS[:60_000]]}, "prompt"),
    ("/v1/completions", {"prompt": WORDS, "truncate_prompt_tokens": 5}, "prompt"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": WORDS[:60_000]}]},
     "messages"),
    ("/v1/responses", {"input": WORDS[:60_000]}, "input"),
    ("/v1/messages", {"messages": [{"role": "user", "content": WORDS[:60_000]}], "max_tokens": 4},
     ""),
    ("/tokenize", {"prompt": WORDS}, "prompt"),
    ("/tokenize", {"messages": [{"role": "user", "content": WORDS}]}, "messages"),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": WORDS}]}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "field"), LONG_PROMPTS)
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokens(
    server: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], field: str
) -> None:
    encode = server.engine.tokenizer.encode

    def short(text: str, special: bool = True, *more: int) -> list[int]:
        assert len(text) < 100
        return encode(text, special, *more)

    monkeypatch.setattr(server.engine.tokenizer, "encode", short)
    got = server.post(path, {"max_tokens": 1, **body} if path == "/v1/completions" else body)
    error = got.body["error"]
    context = server.engine.context
    assert got.status == 400, got.body
    assert error["message"].startswith(f"This model's maximum context length is {context} tokens")
    if field:
        assert (error["param"], error["code"]) == (field, "context_length_exceeded")


def test_a_text_that_may_fit_is_made_tokens(server: Served) -> None:
    """What is refused early has more tokens than the context, to the byte."""
    tokenizer, context = server.engine.tokenizer, server.engine.context
    assert tokenizer.longest is not None
    edge = context * tokenizer.longest
    for size, words in ((edge, "resulted in"), (edge + 1, f"has {edge + 1} bytes")):
        got = server.post("/v1/completions", {"prompt": "a" * size, "max_tokens": 1})
        assert got.status == 400 and words in got.body["error"]["message"]
    assert server.post("/tokenize", {"prompt": "a" * (edge + 1)}).body["count"] > context
    whole = {"prompt": "a" * (edge + 1), "max_tokens": 1, "truncate_prompt_tokens": 4}
    assert server.post("/v1/completions", whole).body["usage"]["prompt_tokens"] == 4


@pytest.mark.slow
def test_connections_without_a_key_lock_nobody_out(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    started = [
        b"", b"GET /health HTT", b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999"
        b"\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 30,
    ]  # fmt: skip
    with attacked(tmp_path, "--api-key-file", str(keys), files=256) as (_child, port, log):
        with ExitStack() as opened:
            held = []
            for number in range(600):
                client = opened.enter_context(connected(port))
                client.sendall(started[number % len(started)])
                held.append(client)
                if number % 50 == 0:
                    assert health_seconds(port) < 8
            for _ in range(30):
                for client in filter(is_open, held):
                    try:
                        client.send(b"x")
                    except OSError:
                        continue
                assert health_seconds(port) < 8
                time.sleep(0.1)
        assert log.stat().st_size < 4 << 20 and "Traceback" not in log.read_text()


def test_connections_that_cannot_be_taken_are_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = server_module._LoopErrors()
    context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "x")}
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            told(loop, context)
        assert len(caplog.records) == 1 and "cannot be taken" in caplog.text
        told(loop, {"message": "another error"})
        assert len(caplog.records) == 2
    loop.close()
