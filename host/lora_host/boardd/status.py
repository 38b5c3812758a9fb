"""Asks a daemon for its boards and their holders, over the protocol itself."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .. import abi
from ..device_uri import split_address
from ..errors import LoraError, RequestError, TransportError
from .keys import FILES, read_token

MAGIC, VERSION = 0x64624F4C, 1
HELLO, STATUS, ANSWER = 1, 17, 0x8000
ROLE_STATUS = 2
HEADER = struct.Struct("<IHHII")  # magic, kind, reserved, bytes of the body, sequence
GREETING = struct.Struct("<IIII72s64s64s")  # version, ABI, role, port, token, board, who
STATE = struct.Struct("<64s128sII")  # name, holder, busy, sessions
REFUSAL = struct.Struct("<II")  # status, reserved; then struct lora_failure
_MESSAGE_OFFSET, _MESSAGE_BYTES = 96, 256
_LIMIT, _TIMEOUT_S = 1 << 16, 10.0
_MAKE_KEYS = "make keys with 'lora boardd init'"


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
    """A connection to "tcp:HOST:PORT" (with TLS) or "unix:PATH". TransportError; RequestError for
    another address."""
    scheme, where = split_address(address)
    if scheme == "unix":
        return _connected(address, lambda: _unix(where))
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    keys = keys_folder()
    context = _context(keys)
    made = _connected(address, lambda: socket.create_connection((host, int(port)), _TIMEOUT_S))
    try:
        return context.wrap_socket(made, server_hostname=host)
    except BaseException as cause:
        made.close()
        if not isinstance(cause, OSError | ValueError):
            raise
        raise _refused(address, keys, cause) from None


def _connected(address: str, connect: Callable[[], socket.socket]) -> socket.socket:
    try:
        return connect()
    except UnicodeError:  # of a label that is empty or too long
        raise _no_host(address) from None
    except PermissionError:
        raise TransportError(
            f"{address}: you may not use this socket; --user of 'lora boardd serve' says who may"
        ) from None
    except OSError as cause:
        raise TransportError(
            f"{address}: no board daemon answers there: {cause.strerror or cause}; start it with "
            "'lora boardd serve'"
        ) from None


def _unix(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(_TIMEOUT_S)
    try:
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made


def _context(folder: Path) -> ssl.SSLContext:
    """TLS with a folder of keys. TransportError names the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authority, certificate, key = (folder / name for name in FILES[:3])
    with _keys_named(authority):
        context.load_verify_locations(authority)
    with _keys_named(certificate, key):
        context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _keys_named(*paths: Path) -> Iterator[None]:
    names = " and ".join(map(str, paths))
    try:
        for path in paths:
            path.open("rb").close()  # OpenSSL does not say which one is missing
        yield
    except ssl.SSLError as cause:
        reason = (cause.reason or "not in PEM").replace("_", " ").lower()
        raise TransportError(f"{names}: {reason}; {_MAKE_KEYS}") from None
    except OSError as cause:
        raise TransportError(f"{cause.filename or names}: {cause.strerror}; {_MAKE_KEYS}") from None


def _refused(address: str, keys: Path, cause: OSError | ValueError) -> LoraError:
    """Why a handshake has failed."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = f"{cause.verify_message[:1].lower()}{cause.verify_message[1:]}".rstrip(".")
        return TransportError(
            f"{address}: its certificate is refused: {why}; one for that host by the CA of "
            f"{keys / FILES[0]} expected"
        )
    if isinstance(cause, OSError):
        why = cause.strerror or str(cause)
        return TransportError(f"{address}: TLS is refused: {why}; is it a board daemon?")
    return _no_host(address)  # its name begins with a dot


def _no_host(address: str) -> RequestError:
    return RequestError(f"address {address!r}: a host's name or address expected")


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
    scheme, _ = split_address(address)
    token = read_token(keys_folder()) if scheme == "tcp" else ""
    with connect(address) as connection:
        try:
            connection.sendall(greeting(ROLE_STATUS, token))
            kind, body = receive(connection)
        except OSError as cause:
            raise TransportError(f"{address}: no answer: {cause.strerror or cause}") from None
    if len(body) < REFUSAL.size:
        raise TransportError(f"{address}: an answer of {len(body)} B, no board daemon's")
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
