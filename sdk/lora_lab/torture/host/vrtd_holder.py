"""Another process's buffers on a V80: a client of vrtd that holds all of a bank."""

from __future__ import annotations

import os
import socket
import struct

from lora_host.errors import TransportError
from lora_host.vrtd_mock.allocator import HBM_REGION, REGION
from lora_host.vrtd_mock.server import HEADER, OK, PACKET

OPEN_BUFFER = 10
REGIONS_OF_A_BANK = 2


class BankHolder:
    """Holds HBM bank `bank` of a board of the vrtd at `path`, until it is closed."""

    def __init__(self, path: str, board: int, bank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)
        for half in range(REGIONS_OF_A_BANK):
            self._take(board, REGIONS_OF_A_BANK * bank + half)

    def _take(self, board: int, region: int) -> None:
        body = struct.pack("<IIIQQ", board, HBM_REGION, 0, region, REGION)
        self._socket.send(HEADER.pack(len(body), OPEN_BUFFER, region + 1) + body)
        packet, descriptors, _, _ = socket.recv_fds(self._socket, PACKET, 1)
        for descriptor in descriptors:  # the buffer is the connection's
            os.close(descriptor)
        code = HEADER.unpack_from(packet)[1]
        if code != OK:
            raise TransportError(f"vrtd: region {region} of board {board} refused with {code}")

    def close(self) -> None:
        """Give the bank back."""
        self._socket.close()
