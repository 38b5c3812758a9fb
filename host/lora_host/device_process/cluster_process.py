"""The process that runs the emulated boards of several device processes. One thread alternates
between a slice of the boards' work and the hosts' calls, so a status read never waits for a run."""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import Counter
from pathlib import Path

from lora_host import native
from lora_host.cluster_file import Cable
from lora_host.emulated import Emulated
from lora_host.errors import LoraError, TransportError
from lora_host.held_folder import remove_left
from lora_host.overlay import load_overlay

from . import wire
from .__main__ import HELLO, SOCKET_NAME
from .board import EmulatedBoard
from .calls import ACCESSES, CALLS, FAILED, Answer, Fields, answer_gone, is_last

FIRST_CLIENT_SECONDS = 60.0  # the device process that starts this one connects at once
PEER_SECONDS = 10.0  # timeout in the middle of a message
FAULT = b"FAULT "
COUNTS = b"COUNTS "
CHUNK = 1 << 20
IDLE_SECONDS = 0.002  # real time per iteration while all boards wait for their clock


class Client:
    """A board in use. `host`: connection to XRT; `life`: connection to the device process."""

    def __init__(self, host: socket.socket, life: socket.socket, board: EmulatedBoard) -> None:
        self.host, self.life, self.board = host, life, board
        self.gone = False  # the device process died: the card has left the bus
        self.accesses: Counter[str] = Counter()
        host.settimeout(PEER_SECONDS)

    def serve(self) -> bool:
        """Answers one call. False if the session has ended."""
        head = self._receive(wire.FRAME.size)
        tag, size, second, call = wire.FRAME.unpack(head)
        if (tag, second) != wire.FRAME_TAGS or size > wire.MAX_MESSAGE:
            raise TransportError(f"frame {bytes(head).hex()}: not XRT's")
        fields = wire.decode(self._receive(size))
        if call not in CALLS:
            raise TransportError(f"call {call} is not served")
        if call in ACCESSES:
            self.accesses[ACCESSES[call]] += 1
        answer = self._perform(call, fields)
        parts = wire.encode(answer)
        total = sum(map(len, parts))
        self.host.sendall(wire.ANSWER.pack(wire.FRAME_TAGS[0], total))
        for part in parts:
            self.host.sendall(part)
        return not is_last(call, fields)

    def _perform(self, call: int, fields: Fields) -> Answer:
        try:
            return answer_gone(call, fields) if self.gone else CALLS[call](self.board, fields)
        except (LoraError, ValueError, OverflowError, MemoryError) as error:
            # The process is all boards': what a check has missed ends one call.
            _log(f"call {call}: {error}")
            return FAILED

    def _receive(self, size: int) -> memoryview:
        buffer = bytearray()
        while len(buffer) < size:  # grows with what arrives: a header may say any size
            start = len(buffer)
            buffer += bytes(min(size - start, max(start, CHUNK)))
            view, done = memoryview(buffer), start
            while done < len(view):
                count = self.host.recv_into(view[done:])
                if not count:
                    raise TransportError("the host has closed its connection")
                done += count
            view.release()
        return memoryview(buffer)

    def close(self) -> None:
        """Resets the board and closes the connections to both other processes."""
        self.board.close()
        self.host.close()
        self.life.close()


class ClusterProcess:
    """The boards described by `cluster.json` in the folder, served until the last client ends."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "cluster.json").read_text())
        self._overlay = load_overlay(facts["overlay"])
        boards = int(facts["boards"])
        self._speed = int(facts["speed"])  # board seconds per second
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
        """Serves until the last client ends, or the first one does not connect in time."""
        end, then, served = time.monotonic() + FIRST_CLIENT_SECONDS, time.monotonic(), False
        while self._clients or (not served and time.monotonic() < end and self._path.exists()):
            now = time.monotonic()
            # Busy boards advance their own clock; for waiting boards it follows real time.
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
            return  # dropped earlier in this iteration
        if key.fileobj is client.life:
            self._selector.unregister(client.life)
            client.gone = True
            return
        try:
            alive = client.serve()
        except (LoraError, OSError) as error:
            _log(f"board {key.data}: {error}")
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
                self._inject_fault(life, message)
                return
            if not descriptors and message.startswith(COUNTS):
                self._tell_accesses(life, message)
                return
            if descriptors:
                host = socket.socket(fileno=descriptors[0])
            index = message[-1] if len(message) == len(HELLO) + 1 else -1
            if host is None or not 0 <= index < self._boards or index in self._clients:
                raise TransportError(f"board {index}: not free, or not of 0..{self._boards - 1}")
            client = Client(host, life, EmulatedBoard(self._cluster, self._overlay, index))
            life.sendall(b"\1")
        except (LoraError, OSError) as error:
            _log(f"board {index}: refused: {error}")
            life.close()
            if host is not None:
                host.close()
            return
        self._clients[index] = client
        for connection in (client.host, client.life):
            self._selector.register(connection, selectors.EVENT_READ, index)

    def _inject_fault(self, life: socket.socket, message: bytes) -> None:
        """ "FAULT BOARD KIND A B C": injects a fault into a board; answered by one byte."""
        with life:
            try:
                self._cluster.fault(*map(int, message[len(FAULT) :].split()))
            except (ValueError, TypeError, OverflowError) as cause:
                raise TransportError(
                    f"{message!r}: FAULT and up to five numbers expected"
                ) from cause
            life.sendall(b"\1")

    def _tell_accesses(self, life: socket.socket, message: bytes) -> None:
        """ "COUNTS BOARD": answered by the board's accesses since it was opened, as JSON."""
        with life:
            number = message[len(COUNTS) :]
            client = self._clients.get(int(number)) if number.isdigit() else None
            if client is None:
                raise TransportError(
                    f"{message!r}: COUNTS and the number of an open board expected"
                )
            life.sendall(json.dumps(client.accesses).encode())

    def _drop(self, index: int) -> None:
        client = self._clients.pop(index)
        self._selector.unregister(client.host)
        if not client.gone:
            self._selector.unregister(client.life)
        client.close()


def _log(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def main(folder: Path) -> int:
    """Serves the folder's boards, and removes it if its owner was killed. Returns the exit code."""
    try:
        ClusterProcess(folder).run()
    except OSError:
        if folder.exists():
            raise
        return 0  # its owner has removed it
    finally:
        remove_left(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
