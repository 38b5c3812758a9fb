"""Attacks with connections: slow ones, half ones, ones that say two things, ones that go away."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from random import Random

from tests.attack.aim import HOSTILE, Aim, parse, posted, received

Answers = Counter[str]
HEAD = f"host: a\r\nauthorization: Bearer {HOSTILE}\r\ncontent-type: application/json\r\n".encode()
GET = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
HIDDEN = b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n"
STREAM = b'{"prompt":"a","max_tokens":200,"stream":true,"ignore_eos":true,"n":%d}'
LONG = b'{"prompt":"a","max_tokens":200,"ignore_eos":true,"n":%d}'


def _try(client: socket.socket, data: bytes) -> bool:
    """Whether some of it was taken; the server may close at any time."""
    try:
        client.settimeout(0.2)
        client.send(data)
    except OSError:
        return False
    return True


def slow(aim: Aim, random: Random) -> Answers:
    """A byte a second, and less: in the request's line, a header, a length, a body, a chunk."""
    starts = [
        b"", b"GE", b"GET /health HTTP/1.1\r\nhost: ", b"POST /v1/completions HTTP/1.1\r\n" + HEAD,
        b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"content-length: 200000\r\n\r\n{",
        b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999\r\n\r\n",
    ]  # fmt: skip
    with ExitStack() as opened:
        held = [opened.enter_context(aim.connect()) for _ in range(random.choice((40, 200)))]
        for client in held:
            _try(client, random.choice(starts))
        for _ in range(8):
            time.sleep(random.choice((0.3, 1.0)))
            held = [client for client in held if _try(client, random.choice((b"x", b"1", b"\r")))]
    return Answers({"held": len(held)})


def unread(aim: Aim, random: Random) -> Answers:
    """Requests one after another whose answers nobody reads."""
    lines = ((1, GET), (50, GET), (20, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"), (20, HIDDEN))
    sent = 0
    with ExitStack() as opened:
        held = []
        for _ in range(20):
            client = opened.enter_context(aim.connect())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            held.append(client)
        for _ in range(20):
            for client in held:
                count, line = random.choice(lines)
                sent += count * _try(client, line * count)
            time.sleep(0.1)
        time.sleep(random.choice((0, 3)))
    return Answers({"sent": sent})


def half_closed(aim: Aim, random: Random) -> Answers:
    """Clients that say that nothing more comes, in the middle or at the end of a request."""
    found = Answers()
    whole = posted("/v1/completions", STREAM % 1)
    for _ in range(30):
        with aim.connect() as client:
            cut = random.choice((len(whole), random.randrange(len(whole))))
            with suppress(OSError):
                client.sendall(whole[:cut])
                client.shutdown(socket.SHUT_WR)
            if random.random() < 0.5:
                found[str(parse(received(client)).status)] += 1
    return found


def idle(aim: Aim, random: Random) -> Answers:
    """More connections than the server has descriptors, from several addresses."""
    found = Answers()
    with ExitStack() as opened:
        for number in range(700):
            with suppress(OSError):
                client = opened.enter_context(aim.connect(f"127.0.0.{3 + number % 5}"))
                _try(client, random.choice((b"", b"G", GET)))
                found["opened"] += 1
        time.sleep(1)
    return found


def _ambiguous(random: Random) -> bytes:
    """A request whose length can be read in two ways; what follows it is hidden in it."""
    bodies = b"0\r\n\r\n" + HIDDEN
    lengths = [
        b"content-length: 4\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 0",
        b"content-length: 0\r\ncontent-length: 5", b"content-length: 5, 0",
        b"transfer-encoding: identity", b"transfer-encoding: xchunked",
        b"transfer-encoding: chunked, identity", b"transfer-encoding: gzip, chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"transfer-encoding : chunked", b"transfer-encoding:\x0bchunked", b"content-length: +5",
        b"content-length: 0x5", b"content-length: 5_0", b"content-length: -1",
        b"content-length: 99999999999999999999999", b"content-length: 5\r\n\tx",
        b"content-length: \xd9\xa5", b"content-length: 5\x00", b" content-length: 5",
        b"x: y\rcontent-length: 0\r\ncontent-length: 5", b"content-length:",
    ]  # fmt: skip
    line = random.choice((b"POST /health HTTP/1.1", b"POST /v1/completions HTTP/1.1",
                          b"GET /health HTTP/1.1"))  # fmt: skip
    return line + b"\r\nhost: a\r\n" + random.choice(lengths) + b"\r\n\r\n" + bodies


def smuggled(aim: Aim, random: Random) -> Answers:
    """Two answers to one request whose length is in doubt: the hidden one was taken."""
    found = Answers()
    for _ in range(40):
        request = _ambiguous(random)
        with aim.connect() as client:
            with suppress(ConnectionError):
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            data = received(client)
        if b'"object":"list"' in data.replace(b" ", b""):
            found[f"finding: a hidden request was answered: {request!r}"] += 1
        found[str(parse(data).status)] += 1
    return found


def odd_heads(aim: Aim, random: Random) -> Answers:
    """Requests that are too long, of another protocol, or of none."""
    size = random.choice((1 << 13, 1 << 16, 1 << 20))
    heads = [
        b"GET /" + b"a" * size + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"A" * size, b"GET /health HTTP/1.1\r\nx: " + b"y" * size + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * (size // 6) + b"\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\n" + b"cookie: " + b"a=b;" * 2000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64), b"\x16\x03\x01\x02\x00\x01" + bytes(600),
        b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\n"
        b"upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
        b"GET /v1/realtime HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"CONNECT 10.0.0.1:80 HTTP/1.1\r\nhost: a\r\n\r\n", b"TRACE / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET http://127.0.0.1:22/ HTTP/1.1\r\nhost: 127.0.0.1:22\r\n\r\n", b"GET /\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: a\r\norigin: null\r\n\r\n", b"\r\n" * 5000, bytes(5000),
        b"GET /health HTTP/9.9\r\nhost: a\r\n\r\n", b"GET /health HTTP/1.1\nhost: a\n\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n", random.randbytes(4000),
        b"GET /%2e%2e/%00%ff%0d%0a HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\x00b\r\nx\xff: \x1b[2J\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"expect: 100-continue\r\n"
        b"content-length: 99\r\n\r\n",
        b"GET /health?" + b"a=%ff&" * 5000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
    ]  # fmt: skip
    found = Answers()
    for head in random.sample(heads, 12):
        with aim.connect() as client:
            with suppress(ConnectionError):
                client.sendall(head)
                client.shutdown(socket.SHUT_WR)
            found[str(parse(received(client)).status)] += 1
    return found


def chunks(aim: Aim, random: Random) -> Answers:
    """Bodies in pieces: tiny, with long extensions, with sizes that are none, with trailers."""
    piece = b"1\r\n \r\n"
    bodies = [
        piece * 60_000 + b"0\r\n\r\n",
        b"1;" + b"a" * 100_000 + b"\r\n{\r\n0\r\n\r\n",
        (b"1;a=b\r\n \r\n") * 20_000 + b"0\r\n\r\n",
        b"f" * 16 + b"\r\n{",
        b"f" * 400 + b"\r\n",
        b"-1\r\n{\r\n",
        b"0x1\r\n{\r\n",
        b"1 \r\n{\r\n0\r\n\r\n",
        b"zz\r\n",
        b"\r\n",
        b"1\r\n{X0\r\n",
        b"0\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"0\r\nhost: b\r\ncontent-length: 4\r\n\r\n",
        b"1_0\r\n" + b" " * 16 + b"\r\n0\r\n\r\n",
        b"400001\r\n" + b" " * (4 << 20) + b" \r\n0\r\n\r\n",
    ]
    found = Answers()
    path = random.choice((b"/v1/completions", b"/health", b"/nowhere", b"/v1/chat/completions"))
    for body in random.sample(bodies, 8):
        with aim.connect() as client:
            with suppress(ConnectionError):
                client.sendall(
                    b"POST "
                    + path
                    + b" HTTP/1.1\r\n"
                    + HEAD
                    + b"transfer-encoding: chunked\r\n\r\n"
                    + body
                )
                client.shutdown(socket.SHUT_WR)
            found[str(parse(received(client)).status)] += 1
    return found


def _leave(client: socket.socket) -> None:
    """Goes away with a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def cancelled(aim: Aim, random: Random) -> Answers:
    """Streams whose clients go away after some bytes."""
    for _ in range(25):
        client = aim.connect()
        with suppress(OSError):
            client.sendall(posted("/v1/completions", STREAM % random.choice((1, 2, 16))))
            if random.random() < 0.7:
                client.recv(random.choice((1, 200, 4000)))
        if random.random() < 0.5:
            client.close()
        else:
            _leave(client)
    return Answers({"sent": 25})


def slow_readers(aim: Aim, random: Random) -> Answers:
    """Streams of which a byte at a time is read."""
    with ExitStack() as opened:
        held = []
        for _ in range(24):
            client = opened.enter_context(aim.connect())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with suppress(OSError):
                client.sendall(posted("/v1/completions", STREAM % random.choice((1, 4))))
            client.settimeout(0.05)
            held.append(client)
        for _ in range(30):
            for client in held:
                with suppress(OSError):
                    client.recv(1)
            time.sleep(0.1)
    return Answers({"sent": 24})


def flooded(aim: Aim, random: Random) -> Answers:
    """One key's requests in the queue that all share: some are refused, none with 5xx."""

    def ask(number: int) -> str:
        body = (STREAM if number % 2 else LONG) % random.choice((1, 1, 4))
        with aim.connect() as client:
            client.sendall(posted("/v1/completions", body))
            if number % 3 == 0:
                return "left"
            return str(parse(received(client)).status)

    with ThreadPoolExecutor(60) as pool:
        return Answers(pool.map(ask, range(120)))


WIRE: dict[str, Callable[[Aim, Random], Answers]] = {
    one.__name__: one
    for one in (slow, unread, half_closed, idle, smuggled, odd_heads, chunks, cancelled,
                slow_readers, flooded)
}  # fmt: skip
