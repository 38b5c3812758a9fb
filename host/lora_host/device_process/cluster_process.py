"""The one process in which the emulated boards of several device processes live. One thread: a
slice of the boards' work, then whatever the hosts ask, so a status read never waits for a run."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from pathlib import Path

from lora_host import native
from lora_host.cluster_file import Cable
from lora_host.emulated import Emulated
from lora_host.errors import LoraError, TransportError
from lora_host.overlay import load_overlay
from lora_host.xrt_folder import remove_left

from . import wire
from .__main__ import HELLO, SOCKET_NAME
from .board import EmulatedBoard
from .calls import CALLS, FAILED, Answer, Fields, answer_gone, is_last

FIRST_CLIENT_SECONDS = 60.0  # the device process that starts us connects at once
PEER_SECONDS = 10.0  # a host that stops in the middle of a message is gone
FAULT = b"FAULT "
IDLE_SECONDS = 0.002  # of real time, passed on to the boards' clock, when only time helps


class Client:
    """A board in use: `host` is XRT's connection, `life` the device process's."""

    def __init__(self, host: socket.socket, life: socket.socket, board: EmulatedBoard) -> None:
        self.host, self.life, self.board = host, life, board
        self.gone = False  # the device process died: the card has left the bus
        host.settimeout(PEER_SECONDS)

    def serve(self) -> bool:
        """Answers one call; False when the session has ended."""
        head = self._receive(wire.FRAME.size)
        tag, size, second, call = wire.FRAME.unpack(head)
        if (tag, second) != wire.FRAME_TAGS or size > wire.MAX_MESSAGE:
            raise TransportError(f"frame {bytes(head).hex()}: not XRT's")
        fields = wire.decode(self._receive(size))
        if call not in CALLS:
            raise TransportError(f"call {call} is not served")
        answer = answer_gone(call, fields) if self.gone else self._perform(call, fields)
        pieces = wire.encode(answer)
        total = sum(map(len, pieces))
        self.host.sendall(wire.ANSWER.pack(wire.FRAME_TAGS[0], total))
        for piece in pieces:
            self.host.sendall(piece)
        return not is_last(call, fields)

    def _perform(self, call: int, fields: Fields) -> Answer:
        try:
            return CALLS[call](self.board, fields)
        except LoraError as error:
            _say(f"call {call}: {error}")
            return FAILED

    def _receive(self, size: int) -> memoryview:
        buffer = bytearray(size)
        view, at = memoryview(buffer), 0
        while at < size:
            got = self.host.recv_into(view[at:])
            if not got:
                raise TransportError("the host has closed its connection")
            at += got
        return view

    def close(self) -> None:
        """Resets the board and lets both other processes see the end."""
        self.board.close()
        self.host.close()
        self.life.close()


class ClusterProcess:
    """Boards as `cluster.json` of the folder says, served until the last client has gone."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "cluster.json").read_text())
        self._overlay = load_overlay(facts["overlay"])
        boards = int(facts["boards"])
        self._speed = int(facts["speed"])  # board seconds a second
        cables = [Cable(*ends) for ends in facts["cables"]]
        self._cluster = Emulated(self._overlay, range(1, boards + 1), cables)
        self._moved = native.ffi().new("uint32_t *")
        self._clients: dict[int, Client] = {}
        self._boards = boards
        self._path = folder / SOCKET_NAME
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(boards)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serves until the last client has gone; or until none came in time, or can come."""
        end, then, served = time.monotonic() + FIRST_CLIENT_SECONDS, time.monotonic(), False
        while self._clients or (not served and time.monotonic() < end and self._path.exists()):
            now = time.monotonic()
            # While boards work, their own slices make time; while they wait, real time passes.
            idle = 0 if self._moved[0] else min(int((now - then) * 1e6), 1_000_000) * self._speed
            then = now
            native.lib().lora_emu_advance(self._cluster.number, idle, self._moved)
            for key, _ in self._selector.select(0 if self._moved[0] else IDLE_SECONDS):
                self._answer(key)
            served = served or bool(self._clients)
        self._path.unlink(missing_ok=True)
        self._listener.close()
        self._cluster.close()

    def _answer(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._accept()
            return
        client = self._clients.get(key.data)
        if client is None:
            return  # dropped earlier in this round
        if key.fileobj is client.life:
            self._selector.unregister(client.life)
            client.gone = True
            return
        try:
            alive = client.serve()
        except (LoraError, OSError) as error:
            _say(f"board {key.data}: {error}")
            alive = False
        if not alive:
            self._drop(key.data)

    def _accept(self) -> None:
        life, _ = self._listener.accept()
        life.settimeout(PEER_SECONDS)
        index = -1
        host: socket.socket | None = None
        try:
            message, descriptors, _, _ = socket.recv_fds(life, 64, 1)
            if not descriptors and message.startswith(FAULT):
                self._plant(life, message)
                return
            if descriptors:
                host = socket.socket(fileno=descriptors[0])
            index = message[-1] if len(message) == len(HELLO) + 1 else -1
            if host is None or not 0 <= index < self._boards or index in self._clients:
                raise TransportError(f"board {index}: not free, or not of 0..{self._boards - 1}")
            client = Client(host, life, EmulatedBoard(self._cluster, self._overlay, index))
            life.sendall(b"\1")
        except (LoraError, OSError) as error:
            _say(f"board {index}: refused: {error}")
            life.close()
            if host is not None:
                host.close()
            return
        self._clients[index] = client
        for connection in (client.host, client.life):
            self._selector.register(connection, selectors.EVENT_READ, index)

    def _plant(self, life: socket.socket, message: bytes) -> None:
        """ "FAULT BOARD KIND A B C": a fault knob of the emulated boards; answered by one byte."""
        with life:
            try:
                self._cluster.fault(*map(int, message[len(FAULT) :].split()))
            except (ValueError, TypeError, OverflowError) as cause:
                raise TransportError(
                    f"{message!r}: FAULT and up to five numbers expected"
                ) from cause
            life.sendall(b"\1")

    def _drop(self, index: int) -> None:
        client = self._clients.pop(index)
        self._selector.unregister(client.host)
        if not client.gone:
            self._selector.unregister(client.life)
        client.close()


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    ClusterProcess(Path(sys.argv[1])).run()
    remove_left(Path(sys.argv[1]))  # where those who made the folder were killed
