"""Targets that are sockets: the device process's calls, the messages of the emulation's cluster
process, requests to the mock server for vrtd, K and V that a vLLM server hands over."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from random import Random
from typing import cast

import numpy as np

from lora_host import native
from lora_host.device_process import calls, cluster_process, wire
from lora_host.device_process.__main__ import HELLO, SOCKET_NAME
from lora_host.device_process.board import EmulatedBoard
from lora_host.emulated import Emulated
from lora_host.overlay import load_overlay
from lora_host.vrtd_mock import server
from lora_host.vrtd_mock.board import Device
from lora_sdk import demo_model_path
from lora_sdk.model.config import load_config
from lora_sdk.prefill.job import Job
from lora_sdk.prefill.receiving import Link, ReceivingComputer
from lora_sdk.prefill.shared_kv import (
    QUEUED,
    NotComputed,
    Opening,
    Ready,
    crc_of,
    digest_of,
    error_line,
    line_of,
)
from tests.fuzz import structure
from tests.fuzz.target import Target

ADVANCES = 20  # slices of a board's work after an input; a list that would run is never there
NUMBERS = (0, 1, 4, 0x10, 0x3C, 0x400, 4096, 1 << 20, 1 << 30, 1 << 40, (1 << 64) - 1)


class _Stream:
    """A host's end that has sent all its bytes and reads any number of answers."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def settimeout(self, _seconds: float) -> None: ...

    def recv_into(self, view: memoryview) -> int:
        part = self._data[self._at : self._at + len(view)]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def sendall(self, _data: object) -> None: ...

    def close(self) -> None: ...


def _call(number: int, fields: dict[int, wire.Value]) -> bytes:
    body = b"".join(map(bytes, wire.encode(fields)))
    return wire.FRAME.pack(wire.FRAME_TAGS[0], len(body), wire.FRAME_TAGS[1], number) + body


def device_calls(folder: Path) -> Target:
    """XRT's calls to one board, framed. Calls that load name no file that is there."""
    overlay = load_overlay("lora_f_u280")
    cluster = Emulated(overlay, (1,), [])
    moved = native.ffi().new("uint32_t *")
    base = overlay.block_base[0]
    assert base is not None

    def read(data: bytes) -> None:
        board = EmulatedBoard(cluster, overlay, 0)
        try:
            board.program()
            host = cast(socket.socket, _Stream(data))
            client = cluster_process.Client(host, host, board)
            with redirect_stderr(StringIO()):
                while client.serve():
                    pass
            for _ in range(ADVANCES):
                native.lib().lora_emu_advance(cluster.number, 0, moved)
        finally:
            board.close()

    def mutate(random: Random, data: bytes) -> bytes:
        parts = list(_calls(data))
        at = random.randrange(len(parts) + 1)
        number = random.choice((*calls.CALLS, 99))
        fields: dict[int, wire.Value] = {
            field: random.choice((random.choice(NUMBERS), base, random.randbytes(4)))
            for field in range(1, 6)
            if random.random() < 0.8
        }
        parts[at : at + random.randrange(2)] = [_call(number, fields)]
        return b"".join(parts)

    memory = (
        _call(calls.SETUP, {})
        + _call(calls.ALLOCATE, {1: 4096, 2: 8192})
        + _call(calls.TO_DEVICE, {3: 4096, 4: b"content", 5: 7})
        + _call(calls.FROM_DEVICE, {4: 4096, 5: 16})
        + _call(calls.FREE, {1: 4096})
        + _call(calls.CLOSE, {3: 1})
    )
    record = struct.pack("<QQQII", 4096, 0, 8192, 32, 1)
    registers = _call(calls.ALLOCATE, {1: 4096, 2: 8192}) + b"".join(
        _call(calls.REGISTER_WRITE, {1: base, 2: 0x400 + at, 3: record[at : at + 4]})
        for at in range(0, len(record), 4)
    )
    registers += _call(calls.REGISTER_WRITE, {1: base, 2: 0x3C, 3: b"\1\0\0\0"})
    registers += _call(calls.TO_DEVICE, {3: 4096, 4: b"x" * 64, 5: 64})
    registers += _call(calls.WRITE_KERNEL, {2: base, 4: b"\1" + bytes(31)})
    registers += _call(calls.REGISTER_READ, {1: base, 2: 0x50}) + _call(calls.CLOSE, {3: 1})
    load = _call(calls.LOAD, {calls.BITSTREAM_PATH: b"/nowhere"}) + memory
    return Target(
        read, lambda: [memory, registers, load, memory[:-1]], mutate, cluster.close, folder
    )


def _calls(data: bytes) -> list[bytes]:
    """The calls in a stream; what is no call is the last one."""
    found = []
    while len(data) >= wire.FRAME.size:
        size = wire.FRAME.size + wire.FRAME.unpack_from(data)[1]
        found.append(data[:size])
        data = data[size:]
    return [*found, data] if data else found


def cluster_messages(folder: Path) -> Target:
    """What a connection to the cluster process says first. The first byte: a descriptor comes
    along."""
    overlay = load_overlay("lora_f_u280")
    facts = {"overlay": str(overlay.path), "boards": 2, "cables": [], "speed": 1}
    (folder / "cluster.json").write_text(json.dumps(facts))
    process = cluster_process.ClusterProcess(folder)

    def read(data: bytes) -> None:
        ends = socket.socketpair()
        with socket.socket(socket.AF_UNIX) as here, ends[0], ends[1]:
            here.connect(str(folder / SOCKET_NAME))
            rights = [ends[1].fileno()] * (data[:1] == b"\1")
            socket.send_fds(here, [data[1:] or b"\0"], rights)
            with redirect_stderr(StringIO()) as log:
                process._accept()
        for index in list(process._clients):
            process._drop(index)
        assert "Traceback" not in log.getvalue()

    def close() -> None:
        process._listener.close()
        process._cluster.close()

    seeds = [b"\1" + HELLO + b"\0", b"\0FAULT 0 1 0 0 1", b"\0COUNTS 0", b"\1" + HELLO + b"\7"]
    return Target(read, lambda: seeds, structure.of_text, close, folder)


def daemon(folder: Path) -> Target:
    """Requests to the mock server for vrtd. Each: u8 (1: a descriptor comes along), u16 length, the
    packet."""
    cluster = Emulated(load_overlay("lora_f_v80"), (1,), [])
    device = Device(cluster, 0, "0000:21:00.0")
    server.RESET_SECONDS = 0.0  # what a reset takes is no part of reading requests
    given = (folder / "design").open("w+b")
    given.write(b"no design")
    given.flush()

    def read(data: bytes) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here:
            for with_file, packet in _packets(data)[:32]:
                socket.send_fds(here, [packet], [given.fileno()] * with_file)
            here.shutdown(socket.SHUT_WR)
            with redirect_stderr(StringIO()) as log:
                server.Client(there, [device], server.GENERATIONS["1.0.0"]).serve()
        assert "Traceback" not in log.getvalue()

    def mutate(random: Random, data: bytes) -> bytes:
        packets = _packets(data)
        at = random.randrange(len(packets) + 1)
        body = b"".join(
            random.choice((0, 1, 2, 6, 255, 1 << 26, 1 << 29)).to_bytes(4, "little")
            for _ in range(random.randrange(9))
        )
        packets[at : at + random.randrange(2)] = [
            (random.randrange(2), _request(random.randrange(17), body))
        ]
        return b"".join(map(_packed, packets))

    def close() -> None:
        given.close()
        cluster.close()

    names = (struct.pack("<I", 0), struct.pack("<IB", 0, 0), struct.pack("<III", 0, 0, 0))
    buffers = _request(10, struct.pack("<IIIQQ", 0, 1, 0, 6, 64 << 20))
    seeds = [
        b"".join(_packed((0, _request(opcode, body))) for opcode, body in asked)
        for asked in (
            ((0, b"\0"), (1, names[0]), (12, b"0000:21:00.0".ljust(32, b"\0"))),
            ((2, names[1]), (3, names[1]), (14, names[0])),
            ((4, names[0]), (5, bytes(32)), (6, names[2]), (7, names[2])),
            ((9, struct.pack("<IIBB", 0, 250_000_000, 1, 1)), (13, struct.pack("<IBB", 0, 4, 0))),
        )
    ]
    seeds.append(_packed((0, buffers)) + _packed((1, _request(8, names[0]))))
    return Target(read, lambda: seeds, mutate, close)


def _request(opcode: int, body: bytes) -> bytes:
    return server.HEADER.pack(len(body), opcode, 1) + body


def _packed(packet: tuple[int, bytes]) -> bytes:
    return struct.pack("<BH", packet[0], len(packet[1])) + packet[1]


def _packets(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while len(data) >= 3:
        with_file, size = struct.unpack_from("<BH", data)
        found.append((with_file & 1, data[3 : 3 + size]))
        data = data[3 + size :]
    return found


def handed_kv(folder: Path) -> Target:
    """What a vLLM server says to an engine that takes K and V of a prompt of 41 tokens of the demo
    model; memory of zeros comes along."""
    config = load_config(Path(demo_model_path()))
    computer = ReceivingComputer(str(folder / "none"), config, (), 64)
    tokens = list(range(41))
    shape = (config.layers, config.kv_heads, config.head_dim)
    opening = Opening(*shape, len(tokens) - 1, "float16", digest_of(tokens))
    memory = os.memfd_create("fuzz")
    os.ftruncate(memory, opening.bytes)
    job = Job(tokens[:-1], None, lambda: True, name="a", digest=opening.digest)

    def read(data: bytes) -> None:
        here, there = socket.socketpair()
        with there, Link(here, job) as link:
            there.settimeout(0.0)
            socket.send_fds(there, [data[:1] or b"\n"], [memory])
            there.sendall(data[1 : 1 << 16])
            there.shutdown(socket.SHUT_WR)
            computer.take(link, job, lambda part: None)

    def of_zeros(first: int, count: int) -> list[Ready]:
        crc = crc_of(np.zeros((2, count, *shape[1:]), np.float16))
        return [Ready(layer, first, count, crc) for layer in range(config.layers)]

    whole = line_of(opening) + b"".join(map(line_of, of_zeros(0, 40)))
    steps = line_of(opening) + b"".join(map(line_of, of_zeros(0, 32) + of_zeros(32, 8)))
    seeds = [QUEUED + steps, whole, whole[:-1], QUEUED + error_line("gone"), whole[len(QUEUED) :]]
    return Target(
        read, lambda: seeds, structure.of_text, lambda: os.close(memory), folder, (NotComputed,)
    )


SOCKETS: dict[str, Callable[[Path], Target]] = {
    "cluster_messages": cluster_messages,
    "daemon": daemon,
    "device_calls": device_calls,
    "handed_kv": handed_kv,
}
