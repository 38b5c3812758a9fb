"""Keys, bodies and paths that the server does not let through."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AuthenticationError

from lora_host.errors import RequestError
from lora_sdk import Engine
from lora_sdk.serve.settings import check_exposure, digest, read_keys
from tests.served import Served, eventually, served

KEY = "k" * 32
ASK = {"prompt": "a", "max_tokens": 1}


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    """A server with two keys, small bodies and short timeouts."""
    keys = (digest("other-key-of-some-length"), digest(KEY))
    with served(
        lambda progress: Engine(progress=progress), keys=keys, max_body=4096, body_timeout=0.5,
        max_prompts=2,
    ) as running:  # fmt: skip
        yield running


def test_only_a_known_key_is_served(locked: Served) -> None:
    assert locked.client(KEY).completions.create(model="demo", prompt="a", max_tokens=1).choices
    for wrong in ("", "x", KEY[:-1], KEY + "k"):
        with pytest.raises(AuthenticationError) as caught:
            locked.client(wrong or "-").models.list()
        assert caught.value.code == "invalid_api_key"
    assert locked.post("/v1/completions", ASK).status == 401
    assert locked.post("/v1/completions", ASK, authorization=f"Basic {KEY}").status == 401
    assert locked.get("/version").status == 401
    assert locked.get("/health").status == locked.get("/ready").status == 200


def test_bodies_are_bounded(locked: Served) -> None:
    authorization = f"Bearer {KEY}"
    for size, status in ((4096, 400), (4097, 413), (50_000, 413), (500_000, 413)):
        got = locked.post("/v1/completions", b"x" * size, authorization=authorization)
        assert got.status == status and got.body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("before", "head"),
    [
        (b"", b""),
        (b"", b"GET /health HTTP/1.1\r\nhos"),
        (b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n", b"GET /health HTTP/1.1\r\nhos"),
    ],
)
def test_headers_that_do_not_come_end_the_connection(
    locked: Served, before: bytes, head: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=20) as client:
        if before:
            client.sendall(before)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        began = time.monotonic()
        client.sendall(head)
        while client.recv(4096):
            pass
        assert 0.2 < time.monotonic() - began < 15


def test_headers_in_parts_are_taken(locked: Served) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=20) as client:
        for _ in range(3):  # over the limit in all
            for part in (b"GET /health HTTP/1.1\r\nho", b"st: a\r\n\r\n"):
                client.sendall(part)
                time.sleep(0.1)
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_does_not_come_is_a_timeout(locked: Served) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=10) as client:
        began = time.monotonic()
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer " + KEY.encode() + b"\r\ncontent-length: 100\r\n\r\n{"
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"model": "\\ud800", "prompt": "a"}', 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": "a", "temperature": 1e999}', 400),
        (b'{"prompt": "a", "seed": ' + b"9" * 4000 + b"}", 400),
        (b"[" * 4000, 400),
        (b'{"prompt": ' + b"[" * 2000 + b"]" * 2000 + b"}", 400),
        (b'{"prompt": ["a", "b", "c"]}', 400),
    ],
)
def test_bad_bodies(locked: Served, body: bytes, status: int) -> None:
    got = locked.post("/v1/completions", body, authorization=f"Bearer {KEY}")
    assert got.status == status, got.body
    message = got.body["error"]["message"]
    assert "Traceback" not in message and "/" not in message.replace("/v1/models", "")


def test_other_media_types_are_refused(locked: Served) -> None:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "text/plain"}
    assert locked.post("/v1/completions", ASK, **headers).status == 415


def test_unknown_paths_and_methods(locked: Served) -> None:
    got = locked.get("/v1/nothing", authorization=f"Bearer {KEY}")
    assert got.status == 404 and got.body["error"]["type"] == "not_found_error"
    got = locked.get("/v1/completions", authorization=f"Bearer {KEY}")
    assert got.status == 405 and "POST" in got.headers["allow"]


def test_other_machines_need_a_key() -> None:
    check_exposure("127.0.0.1", (), insecure=False)
    check_exposure("localhost", (), insecure=False)
    check_exposure("::1", (), insecure=False)
    check_exposure("0.0.0.0", (digest(KEY),), insecure=False)
    check_exposure("0.0.0.0", (), insecure=True)
    for host in ("0.0.0.0", "::", "10.0.0.1", "board-host"):
        with pytest.raises(RequestError, match="--insecure"):
            check_exposure(host, (), insecure=False)


def test_key_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{KEY}\n\n  {KEY}2  \n")
    assert read_keys(file) == (digest(KEY), digest(KEY + "2"))
    for bad in ("", "# none\n", "short\n", f"{KEY} {KEY}\n", "é" * 20):
        file.write_text(bad)
        with pytest.raises(RequestError):
            read_keys(file)


def test_a_body_that_breaks_its_framing_after_the_answer_leaves_no_traceback(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
    with caplog.at_level(logging.ERROR):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head)
            assert connection.recv(1000).startswith(b"HTTP/1.1 404")
            connection.sendall(b"zz\r\n\r\n")  # no length of a chunk
            while connection.recv(1000):
                pass
        assert server.get("/version").status == 200
    assert not caplog.records, caplog.records[0].getMessage()


def levels(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    """Of the lines of requests, by path."""
    lines = [(r.getMessage(), r.levelno) for r in caplog.records if r.name == "lora.serve"]
    told = [(json.loads(text), level) for text, level in lines if text.startswith("{")]
    return {line["path"]: level for line, level in told if "path" in line}


def test_polls_are_logged_at_debug(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    asked = {"/status", "/metrics", "/health", "/v1/models", "/nothing"}
    with caplog.at_level(logging.DEBUG, "lora.serve"):
        for path in asked:
            server.get(path)
        assert eventually(lambda: levels(caplog).keys() >= asked)
    told = levels(caplog)
    polled = {path: level for path, level in told.items() if level == logging.DEBUG}
    assert set(polled) == {"/status", "/metrics", "/health"}
    assert told["/v1/models"] == told["/nothing"] == logging.INFO
