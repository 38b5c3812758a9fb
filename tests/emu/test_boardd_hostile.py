"""A board daemon under malformed messages, wrong tokens and connections that say nothing: it goes
on, and no board stays reserved."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.boardd.keys import write_keys
from lora_host.boardd.status import HEADER, MAGIC, connect, daemon_status, greeting, receive
from lora_host.errors import TransportError
from lora_host.overlay import load_overlay
from tests.daemon_alive import check_alive
from tests.daemons import ThreadedDaemon
from tests.transports import SPEED

END_S = 60.0
ROLE_BOARD = 1
KINDS = range(2, 17)
FIXED = {4: 48, 5: 24, 6: 24, 7: 12, 8: 12, 9: 24, 10: 24, 11: 168, 13: 4}  # bytes by kind
MESSAGES_A_CONNECTION = 40


def message(rng: random.Random) -> bytes:
    """Mostly of a right size, with numbers that are likely to be wrong."""
    kind = rng.choice(KINDS if rng.random() < 0.98 else range(1 << 16))
    size = FIXED.get(kind, 0)
    if rng.random() < 0.02:
        size = rng.randrange(600)
    words = [rng.choice((0, 1, 2, 0x40, 0x1000, 2**31, 2**32 - 1, rng.getrandbits(32)))]
    words += [rng.choice((0, 0, 0, 1, 64, rng.getrandbits(32))) for _ in range(size // 4)]
    body = struct.pack(f"<{len(words)}I", *words)[:size].ljust(size, b"\0")
    if kind in (3, 10) and rng.random() < 0.5:
        body += rng.randbytes(rng.randrange(100))
    said, magic = len(body), MAGIC
    if rng.random() < 0.01:
        said = rng.choice((said + 1, 2**20 + 513, 2**31, 2**32 - 1))
    if rng.random() < 0.01:
        magic = rng.getrandbits(32)
    return HEADER.pack(magic, kind, rng.choice((0, 0, 1)), said, rng.getrandbits(32)) + body


def beginning() -> bytes:
    """A program, and arenas at the beginning of bank 0 and of the control bank."""
    overlay = load_overlay("lora_f_u280")
    numbers = (overlay.board.kind, overlay.abi, overlay.onchip_bytes, overlay.clock_hz)
    body = struct.pack("<4I4Q", *numbers, *overlay.block_base, 0) + bytes(overlay.image)
    found = HEADER.pack(MAGIC, 4, 0, len(body), 2) + body
    for bank in (0, overlay.control_bank):
        found += HEADER.pack(MAGIC, 5, 0, 24, 3) + struct.pack("<2I2Q", bank, 0, 0, 1 << 16)
    return found


def torment(daemon: ThreadedDaemon, rng: random.Random, count: int) -> int:
    """Connections of `count` messages in all; how many the daemon answered."""
    answered, begun = 0, beginning()
    for _ in range(0, count, MESSAGES_A_CONNECTION):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(END_S)
            connection.connect(str(daemon.socket))
            if rng.random() < 0.9:
                connection.sendall(greeting(ROLE_BOARD, board=rng.choice(daemon.daemon.boards)))
            with contextlib.suppress(OSError, TransportError, struct.error):
                if rng.random() < 0.9:
                    receive(connection)
                if rng.random() < 0.5:
                    connection.sendall(begun)
                for _ in range(MESSAGES_A_CONNECTION):
                    connection.sendall(message(rng))
                connection.shutdown(socket.SHUT_WR)
                while more := connection.recv(1 << 16):
                    answered += len(more) // HEADER.size
    return answered


@pytest.fixture
def daemon() -> Iterator[ThreadedDaemon]:
    with ThreadedDaemon(("emu:u280", "emu:u280"), speed=SPEED) as opened:
        yield opened


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_malformed_messages(daemon: ThreadedDaemon, count: int) -> None:
    answers = torment(daemon, random.Random(count), count)
    assert answers > count // MESSAGES_A_CONNECTION  # it ends at a message that cannot be one
    check_alive(daemon.address, daemon.uris)


@pytest.mark.parametrize("count", [20, pytest.param(2_000, marks=pytest.mark.long)])
def test_wrong_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    pytest.importorskip("cryptography")
    rng = random.Random(count)
    write_keys(tmp_path / "keys", ["127.0.0.1"])
    monkeypatch.setenv("LORA_BOARDD_KEYS", str(tmp_path / "keys" / "client"))
    right = (tmp_path / "keys" / "client" / "token").read_text().strip()
    place = {"listen": ("127.0.0.1", 0), "keys": tmp_path / "keys" / "127.0.0.1"}
    with ThreadedDaemon(("emu:u280",), speed=SPEED, **place) as served:
        for _ in range(count):
            at = rng.randrange(64)
            token = rng.choice(("", right[:-1], right + "0", right[:at] + "x" + right[at + 1 :]))
            with connect(served.daemon.addresses[1]) as connection:
                connection.sendall(greeting(ROLE_BOARD, token, "emu:u280"))
                assert b"the token is not this daemon's" in receive(connection)[1]
        assert daemon_status(served.daemon.addresses[1])[0].sessions == 0
        check_alive(served.address, served.uris)


@pytest.mark.parametrize("count", [50, pytest.param(2_000, marks=pytest.mark.long)])
def test_half_open_connections(daemon: ThreadedDaemon, count: int) -> None:
    """They say nothing, half a header or half a greeting, and stay; beyond the limit they are
    closed."""
    beginnings = (b"", HEADER.pack(MAGIC, 1, 0, 208, 1)[:7], greeting(ROLE_BOARD)[:100])
    with contextlib.ExitStack() as stack:
        for index in range(count):
            if index % 200 == 199:
                time.sleep(5.5)  # those before have had their time
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(daemon.socket))  # waits where many have not been accepted yet
            connection.settimeout(END_S)
            with contextlib.suppress(OSError):
                connection.sendall(beginnings[index % 3])
        time.sleep(5.5)
        check_alive(daemon.address, daemon.uris)
