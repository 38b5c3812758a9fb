"""The mock server answers like vrtd 1.0.0: a row per request, malformed ones included."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

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
    with connect(mock_server) as connection:
        yield connection


def ask(
    vrtd: socket.socket, opcode: int, layout: str, *values: object, more: int = 0,
    given: tuple[int, ...] = (),
) -> Answer:  # fmt: skip
    """Return code and body. `more`: bytes behind the body; `given`: descriptors that come along."""
    body = struct.pack("<" + layout, *values) + bytes(more)
    socket.send_fds(vrtd, [HEADER.pack(len(body), opcode, 7) + body], given)
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
    ("BAR 1", 2, (0, 1), 0, 0, 24),
    ("BAR 3", 2, (0, 3), 0, 0, 24),
    ("BAR 5", 2, (0, 5), 0, 0, 24),
    ("BAR 6", 2, (0, 6), 0, 3, 0),
    ("BAR 255", 2, (0, 255), 0, 3, 0),
    ("descriptor of BAR 0", 3, (0, 0), 0, 0, 8),
    ("descriptor of BAR 2", 3, (0, 2), 0, 0, 8),
    ("descriptor of BAR 4", 3, (0, 4), 0, 0, 8),
    ("descriptor of BAR 1", 3, (0, 1), 0, 5, 0),
    ("descriptor of BAR 3", 3, (0, 3), 0, 5, 0),
    ("descriptor of BAR 5", 3, (0, 5), 0, 5, 0),
    ("descriptor of BAR 6", 3, (0, 6), 0, 3, 0),
    ("QDMA", 4, (0,), 0, 0, 20),
    ("design without a descriptor", 8, (0,), 0, 3, 0),
    ("clock of 400 MHz", 9, (0, 400_000_000, 1, 1), 0, 0, 4),
    ("clock of 0 Hz", 9, (0, 0, 1, 1), 0, 4, 0),
    ("clock, operation 2", 9, (0, 1, 2, 1), 0, 4, 0),
    ("buffer", 10, (0, 0, 0, 0, MIB), 0, 0, 16),
    ("buffer, a body too long", 10, (0, 0, 0, 0, MIB), 4, 0, 16),
    ("buffer of no bytes", 10, (0, 0, 0, 0, 0), 0, 4, 0),
    ("buffer of 512 MiB", 10, (0, 0, 0, 0, 512 * MIB), 0, 0, 16),
    ("buffer of 512 MiB and a byte", 10, (0, 0, 0, 0, 512 * MIB + 1), 0, 4, 0),
    ("buffer of 2^64 - 1 bytes", 10, (0, 0, 0, 0, 2**64 - 1), 0, 8, 0),
    ("buffer in HBM region 64", 10, (0, 1, 0, 64, MIB), 0, 4, 0),
    ("buffer, no such device", 10, (9, 0, 0, 0, MIB), 0, 7, 0),
    ("buffer that nobody has", 11, (0, 1 << 40, MIB), 0, 5, 0),
    ("buffer of no bytes, closed", 11, (0, 1 << 40, 0), 0, 4, 0),
    ("board by name", 12, (b"0000:21:00.0",), 0, 0, 4),
    ("board by short name", 12, (b"21:00",), 0, 0, 4),
    ("board by its function", 12, (b"0000:21:00.2",), 0, 0, 4),
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


def test_a_board_is_named_as_its_file_and_without_a_function(vrtd: socket.socket) -> None:
    _, body = ask(vrtd, 1, "I", 0)
    assert body[:128].rstrip(b"\0") == b"slash_ctl0"
    assert body[128:160].rstrip(b"\0") == b"0000:21:00"
    assert struct.unpack("<4H", body[160:])[:2] == (0x10EE, 0x50B6)


@pytest.mark.parametrize("bar", range(6))
def test_what_a_bar_is(vrtd: socket.socket, bar: int) -> None:
    usable = bar % 2 == 0
    where = (0x20200000000 + bar * 64 * MIB, 64 * MIB) if usable else (0, 0)
    assert struct.unpack("<I4BQQ", ask(vrtd, 2, "IB", 0, bar)[1]) == (
        24, bar, usable, 0, 0, *where
    )  # fmt: skip


def test_queues(vrtd: socket.socket) -> None:
    assert struct.unpack("<5I", ask(vrtd, 4, "I", 0)[1]) == (20, 256, 0, 0, 0)
    code, body = ask(vrtd, 5, "I7I", 0, 28, 0, 3, 0, 0, 0, 0)
    number = struct.unpack("<7I", body)[6]
    assert code == 0 and ask(vrtd, 6, "III", 0, number, 0) == (0, b"\0")
    assert ask(vrtd, 7, "III", 0, number, 0) == (0, b"\0")
    assert ask(vrtd, 6, "III", 0, number, 9) == (4, b"")
    assert ask(vrtd, 6, "III", 0, number, 2) == (0, b"\0")
    assert ask(vrtd, 6, "III", 0, number, 0) == (6, b"")


def test_a_rate_beyond_the_limit_is_missed(vrtd: socket.socket) -> None:
    _, body = ask(vrtd, 9, "IIBB", 0, 400_000_000, 1, 1)
    assert struct.unpack("<I", body) == (480_000_000,)


def test_the_256th_buffer_and_a_wrong_size(vrtd: socket.socket) -> None:
    opened = [ask(vrtd, 10, "IIIQQ", 0, 2, 0, 0, MIB) for _ in range(255)]
    assert {code for code, _ in opened} == {0}
    assert ask(vrtd, 10, "IIIQQ", 0, 2, 0, 0, MIB) == (6, b"")
    assert ask(vrtd, 10, "IIIQQ", 0, 1, 0, 0, 512 * MIB) == (8, b"")  # memory comes first
    size, physical = struct.unpack("<QQ", opened[0][1])
    assert ask(vrtd, 11, "IQQ", 0, physical, size + 1) == (4, b"")
    assert ask(vrtd, 11, "IQQ", 0, physical, size) == (0, b"\0")
    code, body = ask(vrtd, 5, "I7I", 0, 28, 0, 3, 0, 0, 0, 0)  # a queue, as a buffer takes
    assert code == 0 and ask(vrtd, 10, "IIIQQ", 0, 2, 0, 0, MIB) == (6, b"")
    assert ask(vrtd, 6, "III", 0, struct.unpack("<7I", body)[6], 2) == (0, b"\0")


def region_buffers(vrtd: socket.socket, region: int) -> int:
    """How many buffers of 64 MiB an HBM region has room for."""
    codes = [ask(vrtd, 10, "IIIQQ", 0, 1, 0, region, 64 * MIB)[0] for _ in range(9)]
    assert set(codes) == {0, 8}
    return codes.count(0)


def connect(mock_server: MockServer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(mock_server.socket))
    connection.settimeout(10)
    return connection


def test_a_region_has_room_for_eight_buffers() -> None:
    with MockServer(1) as running, connect(running) as here:
        assert region_buffers(here, 3) == 8
        assert ask(here, 10, "IIIQQ", 0, 0, 0, 0, 320 * MIB)[0] == 0
        _, body = ask(here, 10, "IIIQQ", 0, 0, 0, 0, 320 * MIB)
        assert struct.unpack("<QQ", body)[1] == 0x60000000000 + 512 * MIB  # none lies in two


def test_another_clients_buffer(mock_server: MockServer, vrtd: socket.socket) -> None:
    size, physical = struct.unpack("<QQ", ask(vrtd, 10, "IIIQQ", 0, 0, 0, 0, MIB)[1])
    with connect(mock_server) as other:
        assert ask(other, 11, "IQQ", 0, physical, size) == (7, b"")
        assert ask(other, 11, "IQQ", 0, physical, size + 1) == (4, b"")


def test_an_empty_design_is_taken(vrtd: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "design").write_bytes(b"")
    with (tmp_path / "design").open("rb") as empty:
        assert ask(vrtd, 8, "I", 0, given=(empty.fileno(),)) == (0, b"\0")


def test_rights_and_unknown_requests(vrtd: socket.socket) -> None:
    assert ask(vrtd, 15, "IIQQ", 0, 0, 1 << 38, MIB) == (7, b"")
    assert ask(vrtd, 16, "I", 0) == (3, b"")


NO_REQUESTS = {
    "a body longer than it says": HEADER.pack(1, 0, 1) + bytes(2),
    "a body shorter than it says": HEADER.pack(9, 0, 1) + b"\0",
    "three bytes": b"\0\0\0",
    "nothing": b"",
    "too long": HEADER.pack(4088, 0, 1) + bytes(4089),
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_vrtd_is_silent_after_what_is_no_request(name: str) -> None:
    """The connection stays open, requests on it are not answered, and its buffers stay taken."""
    with MockServer(1) as running:
        with connect(running) as here:
            assert ask(here, 10, "IIIQQ", 0, 1, 0, 3, 64 * MIB)[0] == 0
            here.send(NO_REQUESTS[name])
            here.send(HEADER.pack(1, 0, 2) + b"\0")
            here.settimeout(0.3)
            with pytest.raises(TimeoutError):
                here.recv(4096)
        with connect(running) as other:
            assert region_buffers(other, 3) == 7


def test_vrtd_is_silent_after_two_descriptors(vrtd: socket.socket) -> None:
    socket.send_fds(vrtd, [HEADER.pack(1, 0, 1) + b"\0"], [vrtd.fileno(), vrtd.fileno()])
    vrtd.settimeout(0.3)
    with pytest.raises(TimeoutError):
        vrtd.recv(4096)
