"""The table of faults of processes, files and limits. A further kind is a row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lora_sdk.torture.host.child import LOAD, OPEN
from lora_sdk.torture.host.places import Place

Ends = Literal["text", "error", "text or error", "killed"]

RUNNING = ("prefill", "decode", "own loop", "verify", "adapter load")
PHASES = (OPEN, LOAD, *RUNNING)
PAUSE = 1.0  # seconds for which a process is stopped
WEIGHTS = "model.safetensors"

Act = Callable[[Place, int, Path], None]  # the engine's process, the model's folder


@dataclass(frozen=True)
class Kind:
    """`targets`: where it can happen. `act`: what the campaign does at its moment, None where the
    engine's process does it to itself; `before`: it is done before the process starts. `ends`:
    how that process may end. `names`: its error must contain one of these; "uri": any board's."""

    name: str
    targets: tuple[str, ...]
    phases: tuple[str, ...]
    found_by: str
    ends: Ends
    act: Act | None = None
    before: bool = False
    names: tuple[str, ...] = ()


def _send(number: signal.Signals, name: str) -> Act:
    def act(place: Place, engine: int, model: Path) -> None:
        os.kill(engine if name == "host" else place.processes[name](), number)

    return act


def _pause(name: str) -> Act:
    def act(place: Place, engine: int, model: Path) -> None:
        process = engine if name == "host" else place.processes[name]()
        os.kill(process, signal.SIGSTOP)
        time.sleep(PAUSE)
        os.kill(process, signal.SIGCONT)

    return act


def _cut(place: Place, engine: int, model: Path) -> None:
    path = model / WEIGHTS
    os.truncate(path, path.stat().st_size // 2)


def _garble(name: str, at: int) -> Act:
    def act(place: Place, engine: int, model: Path) -> None:
        with (model / name).open("r+b") as file:
            file.seek(at)
            file.write(b"\xff\xfe\x00{[")

    return act


ALL = ("host", "xrt", "slash")
BEHIND = ("xrt", "slash")
KINDS: tuple[Kind, ...] = (
    Kind("host killed", ALL, PHASES, "the next one: its boards are free", "killed",
         _send(signal.SIGKILL, "host")),
    Kind("host stopped", ALL, PHASES, "nothing, or limits of time", "text", _pause("host")),
    Kind("descriptors exhausted", ALL, PHASES, "the call that needs one", "text or error"),
    Kind("memory limit", ("host",), PHASES, "the call that needs some", "text or error"),
    Kind("disk full", ALL, PHASES, "nothing: no file grows", "text or error"),
    Kind("pages exhausted", ALL, ("decode",), "the request that finds none", "error",
         names=("no room",)),
    Kind("weights cut short", ("host",), (OPEN,), "sizes in the file's header", "error", _cut, True,
         (WEIGHTS,)),
    Kind("weights' header garbled", ("host",), (OPEN,), "the header's checks", "error",
         _garble(WEIGHTS, 0), True, (WEIGHTS,)),
    Kind("configuration garbled", ("host",), (OPEN,), "JSON's grammar", "error",
         _garble("config.json", 3), True, ("config.json",)),
    Kind("device process killed", ("xrt",), RUNNING, "calls of XRT", "text",
         _send(signal.SIGKILL, "device process")),
    Kind("daemon killed", BEHIND, RUNNING, "limits of calls", "error",
         _send(signal.SIGKILL, "daemon"), names=("uri",)),
    Kind("daemon stopped", BEHIND, ("decode",), "limits of calls", "error",
         _send(signal.SIGSTOP, "daemon"), names=("uri",)),
    Kind("daemon stopped for a while", BEHIND, RUNNING, "nothing, or limits of time", "text",
         _pause("daemon")),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}


def kinds_of(target: str, phase: str) -> list[Kind]:
    """Those that can strike there."""
    return [kind for kind in KINDS if target in kind.targets and phase in kind.phases]
