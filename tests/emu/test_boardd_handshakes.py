"""A board daemon under TLS connections that are cut at every stage, or stay open there: they are
closed in time, and no board stays reserved."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lora_host.boardd.keys import write_keys
from lora_host.boardd.status import greeting
from tests.daemon_alive import FREE_S, check_alive
from tests.daemons import ThreadedDaemon
from tests.transports import SPEED

pytest.importorskip("cryptography")

ROLE_BOARD = 1
GREETING_S = 5.5  # what a daemon gives a connection for its greeting, and a little
AT_ONCE = 200  # of the 256 connections that a daemon has at most
STAGES = ("connected", "first flight", "unread answer", "second flight", "secure", "greeting")
HELD = ("held", "in a message")  # the board is this client's: it may stay as long as it likes


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_keys(tmp_path / "keys", ["127.0.0.1"])
    monkeypatch.setenv("LORA_BOARDD_KEYS", str(tmp_path / "keys" / "client"))
    return tmp_path / "keys"


@pytest.fixture
def daemon(keys: Path) -> Iterator[ThreadedDaemon]:
    place = {"listen": ("127.0.0.1", 0), "keys": keys / "127.0.0.1"}
    with ThreadedDaemon(("emu:u280",), speed=SPEED, **place) as served:
        yield served


@dataclass(frozen=True)
class Client:
    """Connects with right keys and the right token, as far as a stage."""

    address: tuple[str, int]
    context: ssl.SSLContext
    hello: bytes
    rng: random.Random

    @classmethod
    def of(cls, daemon: ThreadedDaemon, keys: Path, rng: random.Random) -> Client:
        """One of this daemon."""
        folder = keys / "client"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        host, port = daemon.daemon.addresses[1].removeprefix("tcp:").split(":")
        token = (folder / "token").read_text().strip()
        return cls((host, int(port)), context, greeting(ROLE_BOARD, token, "emu:u280/0"), rng)

    def reach(self, connection: socket.socket, stage: str) -> None:
        """Bytes of the handshake and the greeting, up to some place in this stage."""
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = self.context.wrap_bio(arrived, leaving, server_hostname=self.address[0])
        if stage == "connected":
            return
        with contextlib.suppress(ssl.SSLWantReadError):
            secure.do_handshake()
        flight = leaving.read()
        connection.sendall(self._part(flight) if stage == "first flight" else flight)
        if stage in ("first flight", "unread answer"):
            return
        while True:
            try:
                secure.do_handshake()
                break
            except ssl.SSLWantReadError:
                arrived.write(connection.recv(1 << 14))
        flight = leaving.read()
        connection.sendall(self._part(flight) if stage == "second flight" else flight)
        if stage in ("second flight", "secure"):
            return
        secure.write(self.hello)
        record = leaving.read()
        connection.sendall(self._part(record) if stage == "greeting" else record)
        if stage == "in a message":
            secure.write(self._part(self.hello))
            connection.sendall(leaving.read())

    def _part(self, data: bytes) -> bytes:
        return data[: self.rng.randrange(1, len(data))]

    def end(self, connection: socket.socket) -> None:
        """An end of the stream, or a reset of the connection."""
        if self.rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [3 * len(STAGES + HELD)])
def test_cut_handshakes(daemon: ThreadedDaemon, keys: Path, count: int) -> None:
    client = Client.of(daemon, keys, random.Random(count))
    check_alive(daemon.daemon.addresses[1], [f"{daemon.daemon.addresses[1]}/emu:u280/0"])
    before = descriptors()
    for index in range(count):
        with socket.create_connection(client.address, FREE_S) as connection:
            client.reach(connection, (STAGES + HELD)[index % len(STAGES + HELD)])
            client.end(connection)
    check_alive(daemon.daemon.addresses[1], [f"{daemon.daemon.addresses[1]}/emu:u280/0"])
    end = time.monotonic() + FREE_S
    while descriptors() > before:
        assert time.monotonic() < end, "connections that were cut are still open"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("count", [8 * len(STAGES)])
def test_handshakes_that_stay(daemon: ThreadedDaemon, keys: Path, count: int) -> None:
    """Each stops at a stage and stays; the daemon closes it, and then there is room for others."""
    client = Client.of(daemon, keys, random.Random(count))
    for first in range(0, count, AT_ONCE):
        with contextlib.ExitStack() as stack:
            kept = []
            for index in range(first, min(first + AT_ONCE, count)):
                connection = stack.enter_context(socket.create_connection(client.address, FREE_S))
                client.reach(connection, STAGES[index % len(STAGES)])
                kept.append(connection)
            time.sleep(GREETING_S)
            for connection in kept:
                assert is_closed(connection)
    check_alive(daemon.daemon.addresses[1], [f"{daemon.daemon.addresses[1]}/emu:u280/0"])


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end closes it: what it had sent is read first. TimeoutError if it stays."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 14):
            pass
    return True
