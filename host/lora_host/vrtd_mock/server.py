"""Server side of vrtd's protocol: AF_UNIX, SOCK_SEQPACKET, packed little endian."""

from __future__ import annotations

import array
import os
import select
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LoraError
from .allocator import QUEUES
from .board import BAR_BYTES, BARS, Device, NoQueue

PACKET = 4096
HEADER = struct.Struct("<HHI")
OK, BAD_REQUEST, INVALID_ARGUMENT, NOEXIST, INTERNAL, AUTH, BUSY = 0, 3, 4, 5, 6, 7, 8
HBM_DESIGN_LIMIT = 1 << 30
RESET_SECONDS = 0.05  # a board takes 15 s or more
CLOCK_LIMIT_HZ = 333_330_000
MAX_WORD = 0xFFFFFFFF
RESET_SEQUENCE, FUNCTION_ALL = 4, 255
# name, type, exponent, value: 41.5 C, 21.3 W, 0.85 V
SENSORS = ((b"hbm_temp", 1, -1, 415), (b"total_power", 8, -1, 213), (b"vccint", 4, -2, 85))


@dataclass(frozen=True)
class Generation:
    """One of vrtd's layouts: what follows the identification in the answer to request 1, and the
    bodies of requests 8, 10 and 13."""

    info: bytes
    design: str
    buffer: str
    hotplug: str
    buffer_answer: bytes = b""


GENERATIONS = {
    "1.0.0": Generation(b"", "<I", "<IIIQQ", "<IBB"),
    "development": Generation(
        b"\x02\x00", "<IB", "<IIIIQQ", "<IBBB", struct.pack("<I", 1)
    ),  # a compute shell, no JTAG; one queue
    "unknown": Generation(b"\x00" * 4, "<I", "<IIIQQ", "<IBB"),
}


class Refused(Exception):
    """A request that is answered with an error code and no body."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Client:
    """One connection. Its buffers are freed when it closes. Answers as vrtd does: a body that is
    too short is a bad request, what follows a body is ignored. After a packet that is none, of
    another length than its header says, too long, or with several descriptors, vrtd reads no
    further request of its client: there is no answer, and its buffers stay taken."""

    def __init__(
        self, connection: socket.socket, devices: Sequence[Device], generation: Generation
    ) -> None:
        self._socket, self._devices, self._generation = connection, devices, generation
        self._buffers: dict[tuple[int, int], int] = {}
        self._hang_up = select.poll()
        self._hang_up.register(connection, select.POLLRDHUP)
        # opcode -> layout of the body and the function that takes its fields
        self._plain: dict[int, tuple[str, Callable[..., bytes]]] = {
            0: ("<B", self._count), 1: ("<I", self._info), 2: ("<IB", self._bar_info),
            4: ("<I", self._qdma), 5: ("<I7I", self._add_queue), 6: ("<III", self._do_queue),
            9: ("<IIBB", self._clock), 11: ("<IQQ", self._close_buffer), 12: ("<32s", self._by_bdf),
            13: (generation.hotplug, self._hotplug), 14: ("<I", self._sensors),
            15: ("<IIQQ", self._open_raw),
        }  # fmt: skip
        self._giving: dict[int, tuple[str, Callable[..., tuple[bytes, int]]]] = {
            3: ("<IB", self._open_bar), 7: ("<III", self._open_queue),
            10: (generation.buffer, self._open_buffer),
        }  # fmt: skip

    def serve(self) -> None:
        """Answers requests until the client disconnects."""
        try:
            while self._answer():
                pass
            self._hang_up.poll()  # the client's end
        except OSError:
            pass  # the client disconnected during an answer
        finally:
            for device, physical in self._buffers:
                self._devices[device].close_buffer(physical)
            self._socket.close()

    def _answer(self) -> bool:
        """Whether further requests of the client are read."""
        room = socket.CMSG_SPACE(4 * 4)
        packet, ancillary, flags, _ = self._socket.recvmsg(PACKET, room, socket.MSG_CMSG_CLOEXEC)
        sent = _descriptors(ancillary)
        try:
            size = len(packet) - HEADER.size
            is_cut = flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
            if is_cut or len(sent) > 1 or size < 0 or HEADER.unpack_from(packet)[0] != size:
                if not self._hang_up.poll(0):
                    self._buffers.clear()
                return False
            _, opcode, sequence = HEADER.unpack_from(packet)
            body, fd, code = b"", -1, OK
            try:
                body, fd = self._do(opcode, packet[HEADER.size :], sent)
            except Refused as refusal:
                code = refusal.code
            except ValueError:
                code = INVALID_ARGUMENT
            except NoQueue:
                code = INTERNAL
            except LoraError as error:
                sys.stderr.write(f"vrtd mock server: {error}\n")
                code = INTERNAL
            self._send(HEADER.pack(len(body), code, sequence) + body, fd)
        finally:
            for descriptor in sent:
                os.close(descriptor)
        return True

    def _send(self, packet: bytes, fd: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
        try:
            self._socket.sendmsg([packet], rights)
        finally:
            if fd >= 0:
                os.close(fd)

    def _do(self, opcode: int, body: bytes, sent: Sequence[int]) -> tuple[bytes, int]:
        if opcode in self._plain:
            layout, act = self._plain[opcode]
            return act(*_fields(layout, body)), -1
        if opcode in self._giving:
            layout, give = self._giving[opcode]
            return give(*_fields(layout, body))
        if opcode == 8:
            return self._design(_fields(self._generation.design, body), sent), -1
        raise Refused(BAD_REQUEST)

    def _device(self, index: int, missing: int = NOEXIST) -> Device:
        """`missing`: vrtd checks rights on a device before whether there is one."""
        if index >= len(self._devices):
            raise Refused(missing)
        return self._devices[index]

    def _bar(self, index: int, bar: int) -> Device:
        device = self._device(index)
        if bar >= 6:
            raise Refused(BAD_REQUEST)
        return device

    def _count(self, _: int) -> bytes:
        return struct.pack("<I", len(self._devices))

    def _info(self, index: int) -> bytes:
        device = self._device(index)
        ids = (0x10EE, 0x50B6, 0x10EE, 0x000E)
        facts = struct.pack("<128s32s4H", device.name.encode(), device.bdf.encode(), *ids)
        return facts + self._generation.info

    def _bar_info(self, index: int, bar: int) -> bytes:
        """size, BAR, whether it is usable and in use, start, length. A BAR of 64 bits has its upper
        half in the next one, which is not usable."""
        self._bar(index, bar)
        if bar not in BARS:
            return struct.pack("<I4BQQ", 24, bar, 0, 0, 0, 0, 0)
        start = 0x20200000000 + BAR_BYTES * bar
        return struct.pack("<I4BQQ", 24, bar, 1, 0, 0, start, BAR_BYTES)

    def _open_bar(self, index: int, bar: int) -> tuple[bytes, int]:
        device = self._bar(index, bar)
        if bar not in BARS:
            raise Refused(NOEXIST)
        return struct.pack("<Q", BAR_BYTES), device.open_bar(bar)

    def _qdma(self, index: int) -> bytes:
        """size and queues; vectors, functions and capabilities the driver leaves 0."""
        self._device(index)
        return struct.pack("<5I", 20, QUEUES, 0, 0, 0)

    def _add_queue(self, index: int, size: int, *facts: int) -> bytes:
        """mode, directions, three ring sizes; the last field is the number given. The queue
        outlives its client."""
        return struct.pack("<7I", size, *facts[:-1], self._device(index).add_queue())

    def _do_queue(self, index: int, number: int, operation: int) -> bytes:
        device = self._device(index)
        if operation > 2:
            raise Refused(INVALID_ARGUMENT)
        if not device.has_queue(number):
            raise Refused(INTERNAL)
        if operation == 2:
            device.drop_queue(number)
        return b"\0"

    def _open_queue(self, index: int, number: int, _: int) -> tuple[bytes, int]:
        device = self._device(index)
        if not device.has_queue(number):
            raise Refused(INTERNAL)
        return b"\0", device.open_memory()

    def _design(self, fields: tuple[int, ...], sent: Sequence[int]) -> bytes:
        device = self._device(fields[0])
        if not sent:
            raise Refused(BAD_REQUEST)
        if fields[1:] and fields[1] not in (1, 2):  # a service or a compute shell
            raise Refused(INVALID_ARGUMENT)
        facts = os.fstat(sent[0])
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > HBM_DESIGN_LIMIT:
            raise Refused(INTERNAL)
        device.program(os.pread(sent[0], facts.st_size, 0))  # takes the memory that it asks for
        return b"\0"

    def _clock(self, index: int, hz: int, operation: int, region: int) -> bytes:
        """What the clock was set to: a rate beyond the limit is refused by nobody, and missed."""
        device = self._device(index)
        if operation > 1 or region > 1 or (operation == 1 and not hz):
            raise Refused(INVALID_ARGUMENT)
        if operation == 1 and region == 1:
            device.clock_hz = hz if hz <= CLOCK_LIMIT_HZ else min(hz // 5 * 6, MAX_WORD)
        return struct.pack("<I", device.clock_hz)

    def _open_buffer(self, index: int, kind: int, direction: int, *rest: int) -> tuple[bytes, int]:
        argument, size = rest[-2:]
        device = self._device(index, AUTH)
        if direction > 2 or (rest[:-2] and rest[0] > 2):
            raise Refused(INVALID_ARGUMENT)
        opened = device.open_buffer(kind, argument, size)
        if opened is None:
            raise Refused(BUSY)
        extent, fd = opened
        self._buffers[index, extent.physical] = extent.bytes
        answer = struct.pack("<QQ", extent.bytes, extent.physical)
        return answer + self._generation.buffer_answer, fd

    def _close_buffer(self, index: int, physical: int, size: int) -> bytes:
        device = self._device(index)
        held = device.allocator.used.get(physical) if size else None
        if not size or (held is not None and held.bytes != size):
            raise Refused(INVALID_ARGUMENT)
        if held is None:
            raise Refused(NOEXIST)
        if (index, physical) not in self._buffers:  # another client's
            raise Refused(AUTH)
        device.close_buffer(physical)
        del self._buffers[index, physical]
        return b"\0"

    def _by_bdf(self, name: bytes) -> bytes:
        requested = name.partition(b"\0")[0].decode("ascii", "replace")
        if not requested:
            raise Refused(INVALID_ARGUMENT)
        slot = requested.rpartition(".")[0] or requested
        for device in self._devices:
            if slot in (device.bdf, device.bdf.removeprefix("0000:")):
                return struct.pack("<I", device.index)
        raise Refused(NOEXIST)

    def _hotplug(self, index: int, operation: int, function: int, *shell: int) -> bytes:
        device = self._device(index, AUTH)
        if operation > RESET_SEQUENCE or not (function <= 2 or function == FUNCTION_ALL):
            raise Refused(INVALID_ARGUMENT)
        if operation == RESET_SEQUENCE:
            if shell and shell[0] not in (1, 2):
                raise Refused(INVALID_ARGUMENT)
            device.reset()
            time.sleep(RESET_SECONDS)
        return b"\0"

    def _sensors(self, index: int) -> bytes:
        self._device(index)
        rows = [struct.pack("<64sBBbBi", n, kind, 1, exp, 0, v) for n, kind, exp, v in SENSORS]
        return struct.pack("<I", len(rows)) + b"".join(rows)

    def _open_raw(self, *_: int) -> bytes:
        raise Refused(AUTH)  # its users have no right to memory that is not theirs


def _fields(layout: str, body: bytes) -> tuple[Any, ...]:
    """A body's fields. Refused if it is too short; what follows is of a later version."""
    if len(body) < struct.calcsize(layout):
        raise Refused(BAD_REQUEST)
    return struct.unpack_from(layout, body)


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


class Server:
    """Listens and runs a thread per client. `clients`: number of connected clients."""

    def __init__(self, path: Path, devices: Sequence[Device], generation: str = "1.0.0") -> None:
        self._devices, self._generation = devices, GENERATIONS[generation]
        self._lock = threading.Lock()
        self.clients, self.served = 0, 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        self._socket.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.clients += 1
        try:
            Client(connection, self._devices, self._generation).serve()
        finally:
            with self._lock:
                self.clients -= 1
                self.served += 1
