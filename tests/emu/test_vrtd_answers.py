"""The mock server answers like vrtd 1.0.0: a row per request, malformed ones included."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from lora_host.vrtd_mock.process import MockServer

HEADER = struct.Struct("<HHI")
Answer = tuple[int, bytes]


@pytest.fixture(scope="module")
def mock_server() -> Iterator[MockServer]:
    with MockServer(1) as running:
        yield running


@pytest.fixture
def vrtd(mock_server: MockServer) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(mock_server.socket))
        connection.settimeout(10)
        yield connection


def ask(vrtd: socket.socket, opcode: int, layout: str, *values: object, more: int = 0) -> Answer:
    """Return code and body. `more`: bytes behind the body."""
    body = struct.pack("<" + layout, *values) + bytes(more)
    vrtd.send(HEADER.pack(len(body), opcode, 7) + body)
    packet, descriptors, _, _ = socket.recv_fds(vrtd, 4096, 4)
    for descriptor in descriptors:
        os.close(descriptor)
    size, code, sequence = HEADER.unpack_from(packet)
    assert sequence == 7 and size == len(packet) - HEADER.size and (code == 0 or size == 0)
    return code, packet[HEADER.size :]


MIB = 1 << 20
LAYOUTS = {
    0: "B", 1: "I", 2: "IB", 3: "IB", 4: "I", 5: "I7I", 6: "III", 7: "III", 8: "I", 9: "IIBB",
    10: "IIIQQ", 11: "IQQ", 12: "32s", 13: "IBB", 14: "I",
}  # fmt: skip
# name, opcode, values, bytes behind the body, return code, size of the answer's body
ROWS = [
    ("count", 0, (0,), 0, 0, 4),
    ("count, a body too long", 0, (0,), 3, 0, 4),
    ("info", 1, (0,), 0, 0, 168),
    ("info, a body too long", 1, (0,), 9, 0, 168),
    ("info, no such device", 1, (9,), 0, 5, 0),
    ("BAR 0", 2, (0, 0), 0, 0, 24),
    ("BAR 2", 2, (0, 2), 0, 0, 24),
    ("BAR 4", 2, (0, 4), 0, 0, 24),
    ("BAR 6", 2, (0, 6), 0, 3, 0),
    ("BAR 255", 2, (0, 255), 0, 3, 0),
    ("descriptor of BAR 0", 3, (0, 0), 0, 0, 8),
    ("descriptor of BAR 2", 3, (0, 2), 0, 0, 8),
    ("descriptor of BAR 4", 3, (0, 4), 0, 0, 8),
    ("descriptor of BAR 6", 3, (0, 6), 0, 3, 0),
    ("QDMA", 4, (0,), 0, 0, 20),
    ("design without a descriptor", 8, (0,), 0, 3, 0),
    ("clock of 400 MHz", 9, (0, 400_000_000, 1, 1), 0, 0, 4),
    ("clock of 0 Hz", 9, (0, 0, 1, 1), 0, 4, 0),
    ("clock, operation 2", 9, (0, 1, 2, 1), 0, 4, 0),
    ("buffer", 10, (0, 0, 0, 0, MIB), 0, 0, 16),
    ("buffer, a body too long", 10, (0, 0, 0, 0, MIB), 4, 0, 16),
    ("buffer of no bytes", 10, (0, 0, 0, 0, 0), 0, 4, 0),
    ("buffer, no such device", 10, (9, 0, 0, 0, MIB), 0, 7, 0),
    ("buffer that nobody has", 11, (0, 1 << 40, MIB), 0, 5, 0),
    ("board by name", 12, (b"0000:21:00.0",), 0, 0, 4),
    ("board by short name", 12, (b"21:00",), 0, 0, 4),
    ("board without a name", 12, (b"",), 0, 4, 0),
    ("board that is not there", 12, (b"0000:99:00",), 0, 5, 0),
    ("hotplug, no such device", 13, (9, 4, 0), 0, 7, 0),
    ("hotplug, operation 9", 13, (0, 9, 0), 0, 4, 0),
    ("hotplug, function 7", 13, (0, 4, 7), 0, 4, 0),
    ("sensors", 14, (0,), 0, 0, 4 + 3 * 72),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "values", "more", "code", "size"), [
    pytest.param(*row[1:], id=row[0]) for row in ROWS
])  # fmt: skip
def test_an_answer(
    vrtd: socket.socket, opcode: int, values: tuple[object, ...], more: int, code: int, size: int
) -> None:
    found, body = ask(vrtd, opcode, LAYOUTS[opcode], *values, more=more)
    assert (found, len(body)) == (code, size)


@pytest.mark.parametrize("opcode", LAYOUTS)
def test_a_body_too_short_is_a_bad_request(vrtd: socket.socket, opcode: int) -> None:
    assert ask(vrtd, opcode, f"{struct.calcsize('<' + LAYOUTS[opcode]) - 1}x") == (3, b"")


def test_a_board_has_no_function_in_its_name(vrtd: socket.socket) -> None:
    _, body = ask(vrtd, 1, "I", 0)
    assert body[128:160].rstrip(b"\0") == b"0000:21:00"
    assert struct.unpack("<4H", body[160:])[:2] == (0x10EE, 0x50B6)


def test_queues(vrtd: socket.socket) -> None:
    assert struct.unpack("<II", ask(vrtd, 4, "I", 0)[1][:8]) == (20, 256)
    code, body = ask(vrtd, 5, "I7I", 0, 28, 0, 3, 0, 0, 0, 0)
    number = struct.unpack("<7I", body)[6]
    assert code == 0 and ask(vrtd, 6, "III", 0, number, 0) == (0, b"\0")
    assert ask(vrtd, 7, "III", 0, number, 0) == (0, b"\0")
    assert ask(vrtd, 6, "III", 0, number, 9) == (4, b"")


def test_a_rate_beyond_the_limit_is_missed(vrtd: socket.socket) -> None:
    _, body = ask(vrtd, 9, "IIBB", 0, 400_000_000, 1, 1)
    assert struct.unpack("<I", body) == (480_000_000,)


def test_the_256th_buffer_and_a_wrong_size(vrtd: socket.socket) -> None:
    opened = [ask(vrtd, 10, "IIIQQ", 0, 2, 0, 0, MIB) for _ in range(255)]
    assert {code for code, _ in opened} == {0}
    assert ask(vrtd, 10, "IIIQQ", 0, 2, 0, 0, MIB) == (6, b"")
    size, physical = struct.unpack("<QQ", opened[0][1])
    assert ask(vrtd, 11, "IQQ", 0, physical, size + 1) == (4, b"")
    assert ask(vrtd, 11, "IQQ", 0, physical, size) == (0, b"\0")


def test_rights_and_unknown_requests(vrtd: socket.socket) -> None:
    assert ask(vrtd, 15, "IIQQ", 0, 0, 1 << 38, MIB) == (7, b"")
    assert ask(vrtd, 16, "I", 0) == (3, b"")


def test_a_packet_of_another_length_than_it_says(vrtd: socket.socket) -> None:
    vrtd.send(HEADER.pack(9, 0, 1) + b"\0")
    assert vrtd.recv(4096) == b""
