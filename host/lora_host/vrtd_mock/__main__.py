"""The mock server as a program. Prints "ready BDF ..." when clients may connect. Ends with its
parent.

Commands on stdin, answered by "ok" or "no": `fault BOARD KIND A B C` (abi.FAULT_...), `lose
BOARD 0|1` (reports success for a design without loading it), `short BOARD BYTES` (hands out a file
of that size as the BAR). `starts BOARD` is answered by how often lora_ctrl was started."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ..cluster_file import Cable, ring
from ..emulated import Emulated
from ..errors import LoraError
from ..overlay import load_overlay
from .allocator import BUFFERS
from .board import Device
from .server import GENERATIONS, Server

IDLE_S = 0.0003


def parse_cables(text: str) -> tuple[Cable, ...]:
    """ "0.1-1.0,..." as cables: board.port at both ends."""
    cables = []
    for part in filter(None, text.split(",")):
        (a, pa), (b, pb) = (map(int, end.split(".")) for end in part.split("-"))
        cables.append(Cable(a, pa, b, pb))
    return tuple(cables)


def execute(line: str, devices: list[Device], emulated: Emulated) -> str:
    """Executes one line of stdin; the answer. ValueError, IndexError or LoraError if it is
    invalid."""
    words = line.split()
    numbers = [int(word) for word in words[1:]]
    if words[0] == "fault":
        emulated.fault(*numbers)
    elif words[0] == "lose":
        devices[numbers[0]].lose_design = bool(numbers[1])
    elif words[0] == "short":
        devices[numbers[0]].short_bar = numbers[1]
    elif words[0] == "starts":
        return str(devices[numbers[0]].starts)
    else:
        raise ValueError(words[0])
    return "ok"


def listen(devices: list[Device], emulated: Emulated) -> None:
    """Reads stdin until it ends. In a shell's background a terminal cannot be read, which is an
    OSError where SIGTTIN is ignored."""
    lines = iter(sys.stdin)
    while True:
        try:
            line = next(lines)
        except (StopIteration, OSError):
            return
        try:
            answer = execute(line, devices, emulated)
        except (ValueError, IndexError, TypeError, LoraError) as error:
            answer = f"no: {error}"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def run(devices: list[Device], server: Server, parent: int, last: bool, speed: int) -> None:
    """The boards' clock: real time times `speed`, in steps as small as the work allows."""
    seen = time.monotonic()
    while os.getppid() == parent and not (last and server.served and not server.clients):
        for device in devices:
            device.see_resets()
        now = time.monotonic()
        elapsed, seen = int((now - seen) * 1e6) * speed, now
        busy = False
        for device in devices:
            device.enter_resets()
        for index, device in enumerate(devices):
            # all boards share one clock, which is advanced once per iteration
            try:
                busy |= device.tick(elapsed if index == 0 else 0)
            except LoraError as error:  # invalid data of a client: as a real board, it hangs
                sys.stderr.write(f"vrtd mock server: {device.bdf}: {error}\n")
                device.running = False
        if not busy:
            time.sleep(IDLE_S)


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="vrtd_mock", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--boards", type=int, default=2)
    parser.add_argument("--overlay", default="lora_f_v80")
    parser.add_argument("--kernels", default="native")
    parser.add_argument("--cables", help="e.g. 0.1-1.0,1.1-0.0; default: a ring")
    parser.add_argument("--buffers", type=int, default=BUFFERS, help="max buffers per board")
    parser.add_argument("--speed", type=int, default=1, help="board seconds per second")
    parser.add_argument("--generation", choices=GENERATIONS, default="1.0.0")
    parser.add_argument("--exit-with-last-client", action="store_true")
    options = parser.parse_args()
    overlay = load_overlay(options.overlay)
    cables = ring(options.boards) if options.cables is None else parse_cables(options.cables)
    serials = [0x5100 + board for board in range(options.boards)]
    emulated = Emulated(overlay, serials, cables, options.kernels)
    devices = [
        Device(emulated, board, f"0000:{0x21 + board:02x}:00", options.buffers)
        for board in range(options.boards)
    ]
    server = Server(options.socket, devices, options.generation)
    sys.stdout.write(f"ready {' '.join(f'{device.bdf}.0' for device in devices)}\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)  # it would stop the server, not the reading alone
    threading.Thread(target=listen, args=(devices, emulated), daemon=True).start()
    try:
        run(devices, server, os.getppid(), options.exit_with_last_client, options.speed)
    finally:
        options.socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
