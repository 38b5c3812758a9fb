"""Server side of vrtd's protocol: AF_UNIX, SOCK_SEQPACKET, packed little endian."""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import LoraError
from .board import BAR_BYTES, Device

PACKET = 4096
HEADER = struct.Struct("<HHI")
OK, BAD_REQUEST, INVALID_ARGUMENT, NOEXIST, INTERNAL, BUSY = 0, 3, 4, 5, 6, 8
HBM_DESIGN_LIMIT = 1 << 30
RESET_SECONDS = 0.05  # a board takes 15 s or more
# name, type, exponent, value: 41.5 C, 21.3 W, 0.85 V
SENSORS = ((b"hbm_temp", 1, -1, 415), (b"total_power", 8, -1, 213), (b"vccint", 4, -2, 85))


class Refused(Exception):
    """A request that is answered with an error code and no body."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Client:
    """One connection. Its buffers are freed when it closes."""

    def __init__(self, connection: socket.socket, devices: Sequence[Device]) -> None:
        self._socket, self._devices = connection, devices
        self._buffers: set[tuple[int, int]] = set()

    def serve(self) -> None:
        """Answers requests until the client disconnects."""
        try:
            while self._answer():
                pass
        except OSError:
            pass  # the client disconnected during an answer
        finally:
            for device, physical in self._buffers:
                self._devices[device].close_buffer(physical)
            self._socket.close()

    def _answer(self) -> bool:
        room = socket.CMSG_SPACE(4 * 4)
        packet, ancillary, _, _ = self._socket.recvmsg(PACKET, room, socket.MSG_CMSG_CLOEXEC)
        sent = _descriptors(ancillary)
        try:
            if not packet:
                return False
            if len(packet) < HEADER.size:
                return False
            size, opcode, sequence = HEADER.unpack_from(packet)
            body, fd, code = b"", -1, OK
            try:
                if len(packet) != HEADER.size + size:
                    raise Refused(BAD_REQUEST)
                body, fd = self._do(opcode, packet[HEADER.size :], sent)
            except Refused as refusal:
                code = refusal.code
            except (struct.error, ValueError):
                code = INVALID_ARGUMENT
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
        plain: dict[int, Callable[[bytes], bytes]] = {
            0: self._count, 1: self._info, 2: self._bar_info, 4: self._qdma, 9: self._clock,
            11: self._close_buffer, 12: self._by_bdf, 13: self._hotplug, 14: self._sensors,
        }  # fmt: skip
        if opcode in plain:
            return plain[opcode](body), -1
        if opcode == 3:
            device, bar = struct.unpack("<IB", body)
            self._check_bar(bar)
            return struct.pack("<Q", BAR_BYTES), self._device(device).open_bar()
        if opcode == 8:
            return self._design(body, sent), -1
        if opcode == 10:
            return self._open_buffer(body)
        raise Refused(BAD_REQUEST)

    def _device(self, index: int) -> Device:
        if index >= len(self._devices):
            raise Refused(NOEXIST)
        return self._devices[index]

    @staticmethod
    def _check_bar(bar: int) -> None:
        if bar != 0:
            raise Refused(NOEXIST)

    def _count(self, body: bytes) -> bytes:
        struct.unpack("<B", body)
        return struct.pack("<I", len(self._devices))

    def _info(self, body: bytes) -> bytes:
        device = self._device(*struct.unpack("<I", body))
        ids = (0x10EE, 0x50B4, 0x10EE, 0x000E)
        return struct.pack("<128s32s4H", device.name.encode(), device.bdf.encode(), *ids)

    def _bar_info(self, body: bytes) -> bytes:
        device, bar = struct.unpack("<IB", body)
        self._device(device)
        self._check_bar(bar)
        return struct.pack("<I4BQQ", 24, bar, 1, 1, 0, 0x20200000000, BAR_BYTES)

    def _qdma(self, body: bytes) -> bytes:
        self._device(*struct.unpack("<I", body))
        return struct.pack("<5I", 1, 0, 1, 0, 0)

    def _design(self, body: bytes, sent: Sequence[int]) -> bytes:
        device = self._device(*struct.unpack("<I", body))
        if len(sent) != 1 or os.fstat(sent[0]).st_size > HBM_DESIGN_LIMIT:
            raise Refused(INVALID_ARGUMENT)
        device.program(os.pread(sent[0], HBM_DESIGN_LIMIT, 0))
        return b"\0"

    def _clock(self, body: bytes) -> bytes:
        index, hz, operation, region = struct.unpack("<IIBB", body)
        device = self._device(index)
        if operation > 1 or region > 1 or (operation == 1 and not 0 < hz <= 333_330_000):
            raise Refused(INVALID_ARGUMENT)
        if operation == 1 and region == 1:
            device.clock_hz = hz
        return struct.pack("<I", device.clock_hz)

    def _open_buffer(self, body: bytes) -> tuple[bytes, int]:
        index, kind, direction, argument, size = struct.unpack("<IIIQQ", body)
        if direction > 2:
            raise Refused(INVALID_ARGUMENT)
        opened = self._device(index).open_buffer(kind, argument, size)
        if opened is None:  # as the daemon answers: its table of buffers, or the memory, is full
            raise Refused(INTERNAL if self._device(index).allocator.exhausted else BUSY)
        extent, fd = opened
        self._buffers.add((index, extent.physical))
        return struct.pack("<QQ", extent.bytes, extent.physical), fd

    def _close_buffer(self, body: bytes) -> bytes:
        index, physical, _ = struct.unpack("<IQQ", body)
        if (index, physical) not in self._buffers:
            raise Refused(NOEXIST)
        self._device(index).close_buffer(physical)
        self._buffers.discard((index, physical))
        return b"\0"

    def _by_bdf(self, body: bytes) -> bytes:
        (name,) = struct.unpack("<32s", body)
        requested = name.rstrip(b"\0").decode("ascii", "replace").lower()
        for device in self._devices:
            full = device.bdf.removesuffix(".0")
            if requested.partition(".")[0] in (full, full.removeprefix("0000:")):
                return struct.pack("<I", device.index)
        raise Refused(NOEXIST)

    def _hotplug(self, body: bytes) -> bytes:
        index, operation, _ = struct.unpack("<IBB", body)
        device = self._device(index)
        if operation == 4:
            device.reset()
            time.sleep(RESET_SECONDS)
        return b"\0"

    def _sensors(self, body: bytes) -> bytes:
        self._device(*struct.unpack("<I", body))
        rows = [struct.pack("<64sBBbBi", n, kind, 1, exp, 0, v) for n, kind, exp, v in SENSORS]
        return struct.pack("<I", len(rows)) + b"".join(rows)


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


class Server:
    """Listens and runs a thread per client. `clients`: number of connected clients."""

    def __init__(self, path: Path, devices: Sequence[Device]) -> None:
        self._devices = devices
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
            Client(connection, self._devices).serve()
        finally:
            with self._lock:
                self.clients -= 1
                self.served += 1
