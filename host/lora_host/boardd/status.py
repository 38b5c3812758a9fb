"""Asks a daemon for its boards and their holders, over the protocol itself."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path

from .. import abi
from ..device_uri import split_remote
from ..errors import TransportError
from .keys import read_token

MAGIC, VERSION = 0x64624F4C, 1
HELLO, STATUS, ANSWER = 1, 17, 0x8000
ROLE_STATUS = 2
HEADER = struct.Struct("<IHHII")  # magic, kind, reserved, bytes of the body, sequence
GREETING = struct.Struct("<IIII72s64s64s")  # version, ABI, role, port, token, board, who
STATE = struct.Struct("<64s128sII")  # name, holder, busy, sessions
REFUSAL = struct.Struct("<II")  # status, reserved; then struct lora_failure
_MESSAGE_OFFSET, _MESSAGE_BYTES = 96, 256
_LIMIT, _TIMEOUT_S = 1 << 16, 10.0


@dataclass(frozen=True)
class BoardState:
    """A board of a daemon. `holder`: who has it, "" if it is free. `busy`: it runs. `sessions`: how
    often it was held since the daemon's start."""

    name: str
    holder: str
    busy: bool
    sessions: int


def keys_folder() -> Path:
    """The client's folder of keys: LORA_BOARDD_KEYS, or ~/.config/lora/boardd."""
    named = os.environ.get("LORA_BOARDD_KEYS")
    return Path(named) if named else Path.home() / ".config" / "lora" / "boardd"


def connect(address: str) -> socket.socket:
    """A connection to "tcp:HOST:PORT" (with TLS) or "unix:PATH". TransportError."""
    remote = split_remote(f"{address.rstrip('/')}/emu:any")
    assert remote is not None
    try:
        if remote.scheme == "unix":
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(_TIMEOUT_S)
            made.connect(remote.where)
            return made
        host, _, port = remote.where.rpartition(":")
        return _secure(host.strip("[]"), int(port))
    except (OSError, ssl.SSLError) as cause:
        raise TransportError(
            f"{address}: no board daemon answers there: {cause}; start it with 'lora boardd serve'"
        ) from None


def _secure(host: str, port: int) -> socket.socket:
    folder = keys_folder()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(folder / "ca.pem")
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    made = socket.create_connection((host, port), _TIMEOUT_S)
    try:
        return context.wrap_socket(made, server_hostname=host)
    except BaseException:
        made.close()
        raise


def greeting(role: int, token: str = "", board: str = "", version: int = VERSION) -> bytes:
    """A HELLO."""
    who = f"process {os.getpid()}"
    texts = (text.encode() for text in (token, board, who))
    body = GREETING.pack(version, abi.ABI_NUMBER, role, 0, *texts)
    return HEADER.pack(MAGIC, HELLO, 0, len(body), 1) + body


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """The next message's kind and body. TransportError if it is none."""
    magic, kind, _, size, _ = HEADER.unpack(_exactly(connection, HEADER.size))
    if magic != MAGIC or size > _LIMIT:
        raise TransportError(f"no answer of a board daemon: {magic:#x} found, {MAGIC:#x} expected")
    return kind, _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise TransportError("the board daemon has closed the connection")
        data += more
    return data


def daemon_status(address: str) -> list[BoardState]:
    """The boards of the daemon at "tcp:HOST:PORT" or "unix:PATH". TransportError, RequestError."""
    token = read_token(keys_folder()) if address.startswith("tcp:") else ""
    with connect(address) as connection:
        try:
            connection.sendall(greeting(ROLE_STATUS, token))
            kind, body = receive(connection)
        except OSError as cause:
            raise TransportError(f"{address}: no answer: {cause}") from None
    status, _ = REFUSAL.unpack_from(body)
    data = body[REFUSAL.size :]
    if status:
        text = data[_MESSAGE_OFFSET : _MESSAGE_OFFSET + _MESSAGE_BYTES]
        raise TransportError(f"{address}: {_text(text)}")
    if kind != (STATUS | ANSWER) or len(data) % STATE.size:
        raise TransportError(f"{address}: an answer of kind {kind:#x} with {len(data)} B")
    return [
        BoardState(_text(name), _text(holder), bool(busy), sessions)
        for name, holder, busy, sessions in STATE.iter_unpack(data)
    ]


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("ascii", "replace")
