"""Bad messages to the emulation's cluster process: a call is refused, the other boards live on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.device_process import wire
from lora_host.device_process.__main__ import HELLO, SOCKET_NAME
from lora_host.device_process.calls import (
    ALLOCATE,
    CLOSE,
    FROM_DEVICE,
    LOAD,
    REGISTER_READ,
    REGISTER_WRITE,
    SETUP,
    TO_DEVICE,
)
from lora_host.device_process.cluster_process import ClusterProcess
from lora_host.overlay import load_overlay

OVERLAY = load_overlay("lora_f_u280")
CONTROL = OVERLAY.block_base[0]
FAR = 1 << 60


class Host:
    """XRT's end of one board."""

    def __init__(self, folder: Path, board: int) -> None:
        self.here, there = socket.socketpair()
        self.here.settimeout(20)
        self.life = socket.socket(socket.AF_UNIX)
        self.life.connect(str(folder / SOCKET_NAME))
        socket.send_fds(self.life, [HELLO + bytes([board])], [there.fileno()])
        there.close()
        assert self.life.recv(1)

    def send(self, call: int, fields: dict[int, wire.Value]) -> None:
        body = b"".join(map(bytes, wire.encode(fields)))
        self.here.sendall(wire.FRAME.pack(wire.FRAME_TAGS[0], len(body), wire.FRAME_TAGS[1], call))
        self.here.sendall(body)

    def ask(self, call: int, fields: dict[int, wire.Value]) -> dict[int, int | memoryview]:
        self.send(call, fields)
        _, size = wire.ANSWER.unpack(self._receive(wire.ANSWER.size))
        return wire.decode(memoryview(self._receive(size)))

    def _receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.here.recv(size - len(found))
            assert part, "the connection has ended"
            found += part
        return found

    def close(self) -> None:
        self.here.close()
        self.life.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    facts = {"overlay": str(OVERLAY.path), "boards": 2, "cables": [], "speed": 1}
    (tmp_path / "cluster.json").write_text(json.dumps(facts))
    process = ClusterProcess(tmp_path)
    thread = threading.Thread(target=process.run)
    thread.start()
    both = Host(tmp_path, 0), Host(tmp_path, 1)
    yield both
    for host in both:
        host.close()
    thread.join(20)
    assert not thread.is_alive()


def alive(host: Host) -> None:
    assert host.ask(SETUP, {})[1] == 1


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (LOAD, {2: b"\xff\xfe"}),
        (LOAD, {2: b"a\0b"}),
        (LOAD, {2: b"/dev/zero"}),
        (LOAD, {2: 7}),
        (REGISTER_READ, {1: CONTROL, 2: 1 << 33}),
        (REGISTER_READ, {1: CONTROL, 2: 0xFFFFFFFC}),
        (REGISTER_READ, {1: FAR, 2: 0}),
        (REGISTER_WRITE, {1: CONTROL, 2: 1 << 33, 3: b"\1\0\0\0"}),
        (ALLOCATE, {1: 0, 2: FAR}),
        (ALLOCATE, {1: b"a", 2: 4096}),
        (FROM_DEVICE, {4: 0, 5: FAR}),
        (TO_DEVICE, {3: FAR, 4: b"abcd", 5: 4}),
    ],
)
def test_a_call_is_refused(
    call: int, fields: dict[int, wire.Value], hosts: tuple[Host, Host]
) -> None:
    assert hosts[0].ask(call, fields)[1] == 0
    alive(hosts[0])
    alive(hosts[1])


@pytest.mark.parametrize(
    "frame",
    [
        wire.FRAME.pack(wire.FRAME_TAGS[0], 1 << 31, wire.FRAME_TAGS[1], LOAD),
        wire.FRAME.pack(8, 4, wire.FRAME_TAGS[1], LOAD),
        wire.FRAME.pack(wire.FRAME_TAGS[0], 1, wire.FRAME_TAGS[1], LOAD) + b"\xff",
        wire.FRAME.pack(wire.FRAME_TAGS[0], 0, wire.FRAME_TAGS[1], 99),
    ],
    ids=["2 GiB", "tags", "no message", "no call"],
)
def test_a_frame_that_is_not_xrt_s_ends_its_own_session(
    frame: bytes, hosts: tuple[Host, Host]
) -> None:
    hosts[0].here.sendall(frame)
    assert hosts[0].here.recv(1) == b""
    alive(hosts[1])


def test_a_header_takes_no_memory(hosts: tuple[Host, Host]) -> None:
    """It says 1 GiB; what is not sent is not allocated."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = wire.MAX_MESSAGE
    hosts[0].here.sendall(wire.FRAME.pack(wire.FRAME_TAGS[0], size, wire.FRAME_TAGS[1], LOAD))
    hosts[0].here.sendall(bytes(4096))
    hosts[0].here.shutdown(socket.SHUT_WR)
    assert hosts[0].here.recv(1) == b""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    alive(hosts[1])
    assert hosts[1].ask(CLOSE, {3: 0})[1] == 1
