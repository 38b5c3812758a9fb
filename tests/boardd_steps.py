"""Time that a board daemon adds to a step on loopback, and the ratio: `python -m
tests.boardd_steps [BOARDS] [ROUNDS]`. A small random model; a row a step, with its logits. Local
boards, those behind a Unix socket and those behind TLS take turns, a hundred steps at a time."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from lora_host.boardd.keys import write_keys
from lora_sdk.step.runner import Runner
from tests.daemons import DaemonProcess
from tests.drive import Driver, open_runner
from tests.variants import variant, write_checkpoint

STEPS = 100


def times(runner: Runner) -> list[float]:
    """Seconds of each step of a new sequence."""
    driver = Driver(runner)
    driver.step({0: [5]})
    found = []
    for _ in range(STEPS):
        began = time.perf_counter()
        driver.step({0: [7]})
        found.append(time.perf_counter() - began)
    return found


def open_all(stack: ExitStack, folder: Path, boards: int) -> dict[str, Runner]:
    """The model on local boards and on those of two daemons."""
    model = write_checkpoint(variant("llama_gqa_tied"), folder / "model")
    write_keys(folder / "keys", ["127.0.0.1"])
    os.environ["LORA_BOARDD_KEYS"] = str(folder / "keys" / "client")
    secure = ("--listen", "127.0.0.1:0", "--keys", str(folder / "keys" / "127.0.0.1"))
    unix = stack.enter_context(DaemonProcess("--socket", str(folder / "a.sock"), boards=boards))
    tls = stack.enter_context(DaemonProcess(*secure, boards=boards))
    ways = {"local": (), "unix": tuple(unix.uris), "tls": tuple(tls.uris)}
    return {
        name: stack.enter_context(open_runner(model, boards, devices=devices))
        for name, devices in ways.items()
    }


def main(boards: int = 1, rounds: int = 20) -> None:
    """Prints a line a way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lora-steps-")))
        runners = open_all(stack, folder, boards)
        found: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(rounds):
            for name, runner in runners.items():
                found[name] += times(runner)
        local = statistics.median(found["local"])
        for name, seconds in found.items():
            middle = statistics.median(seconds)
            added, least = middle - local, min(seconds)
            print(
                f"{boards} boards, {name}: median {middle * 1e6:.0f} us a step, "
                f"{added * 1e6:+.0f} us, x{middle / local:.2f}; fastest {least * 1e6:.0f} us, "
                f"{(least - min(found['local'])) * 1e6:+.0f} us"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
