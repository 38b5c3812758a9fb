"""The table of faults of processes, files and limits. A further kind is a row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lora_lab.torture.host.child import HAND_OVER, LOAD, OPEN
from lora_lab.torture.host.places import Place
from lora_lab.torture.host.relay import Relay

Ends = Literal["text", "error", "text or error", "killed"]

RUNNING = ("prefill", "decode", "own loop", "verify", "adapter load")
OPENING = (OPEN, LOAD)
PHASES = (*OPENING, *RUNNING)
WORKING = (*OPENING, "prefill", HAND_OVER, "decode", "own loop", "verify", "adapter load")
"""Of targets with a worker, which hands K and V over."""
PAUSE = 1.0  # seconds for which a process is stopped
WEIGHTS = "model.safetensors"

Act = Callable[[Place, int, Path], None]  # the engine's process, the model's folder


@dataclass(frozen=True)
class Kind:
    """`targets`: where it can happen. `act`: what the campaign does at its moment, None where the
    engine's process does it to itself; `before`: it is done before the process starts; `undo`: what
    it does before the next process. `ends`: how that process may end, `opening` where it strikes
    before the engine is open. `names`: its error must contain one of these; "uri": any board's,
    "last uri": the last one's."""

    name: str
    targets: tuple[str, ...]
    phases: tuple[str, ...]
    found_by: str
    ends: Ends
    act: Act | None = None
    before: bool = False
    names: tuple[str, ...] = ()
    undo: Act | None = None
    opening: Ends | None = None

    def ends_in(self, phase: str) -> Ends:
        """How a process may end where it strikes in that phase."""
        return self.opening or self.ends if phase in OPENING else self.ends


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


def _restart(place: Place, engine: int, model: Path) -> None:
    place.restart()


def _fill(place: Place, engine: int, model: Path) -> None:
    place.fill()


def _empty(place: Place, engine: int, model: Path) -> None:
    place.empty()


def _network(name: str, how: Callable[[Relay], None]) -> Act:
    return lambda place, engine, model: how(place.networks[name])


def _hush(relay: Relay) -> None:
    """Silent for a while."""
    relay.silence()
    time.sleep(PAUSE)
    relay.heal()


def _all_gone(place: Place, engine: int, model: Path) -> None:
    for name in ("daemon", "other daemon"):
        os.kill(place.processes[name](), signal.SIGKILL)


ALL = ("host", "xrt", "slash")
BEHIND = ("xrt", "slash")
REMOTE = ("boardd", "worker", "fleet")
EVERY = (*ALL, *REMOTE)
KILL, STOP, GO_ON = (_send(one, "daemon") for one in (
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT))  # fmt: skip
CONNECTION, SILENCE = "the connection's end", "limits of steps and answers"
LINKS = "the links, else the Router's watchdog"
HEALED = _network("boards", Relay.heal)
KINDS: tuple[Kind, ...] = (
    Kind("host killed", EVERY, WORKING, "the next one: its boards are free", "killed",
         _send(signal.SIGKILL, "host")),
    Kind("host stopped", EVERY, WORKING, "nothing, or limits of time", "text", _pause("host")),
    Kind("descriptors exhausted", (*ALL, "boardd"), PHASES, "the call that needs one",
         "text or error"),
    Kind("memory limit", ("host",), PHASES, "the call that needs some", "text or error"),
    Kind("disk full", ALL, PHASES, "nothing: no file grows", "text or error"),
    Kind("pages exhausted", ALL, ("decode",), "the request that finds none", "error",
         names=("no room",)),
    Kind("bank full", ("slash",), (OPEN,), "vrtd, which has no such buffer", "error", _fill,
         names=("board 1 (slash:0000:22:00.0): bank HBM[0]",), undo=_empty),
    Kind("weights cut short", ("host",), (OPEN,), "sizes in the file's header", "error", _cut, True,
         (WEIGHTS,)),
    Kind("weights' header garbled", ("host",), (OPEN,), "the header's checks", "error",
         _garble(WEIGHTS, 0), True, (WEIGHTS,)),
    Kind("configuration garbled", ("host",), (OPEN,), "JSON's grammar", "error",
         _garble("config.json", 3), True, ("config.json",)),
    Kind("device process killed", ("xrt",), RUNNING, "calls of XRT", "text",
         _send(signal.SIGKILL, "device process")),
    Kind("device process stopped", ("xrt",), RUNNING, "XRT, which waits for its end", "text",
         _send(signal.SIGSTOP, "device process")),
    Kind("device process stopped for a while", ("xrt",), RUNNING, "nothing, or limits of time",
         "text", _pause("device process")),
    Kind("daemon killed", BEHIND, RUNNING, "limits of calls", "error", KILL, names=("uri",)),
    Kind("daemon stopped", BEHIND, ("decode",), "limits of calls", "error", STOP, names=("uri",)),
    Kind("daemon stopped for a while", BEHIND, RUNNING, "nothing, or limits of time", "text",
         _pause("daemon")),
    Kind("daemon restarted", ("slash",), WORKING, "the connection's end", "text", _restart,
         names=("vrtd at",), opening="text or error"),
    Kind("boardd killed", REMOTE, WORKING, CONNECTION, "text", KILL, names=("last uri",),
         undo=_restart, opening="error"),
    Kind("boardd stopped", REMOTE, WORKING, SILENCE, "text", STOP, names=("last uri",),
         undo=GO_ON, opening="error"),
    Kind("boardd stopped for a while", REMOTE, WORKING, "nothing, or limits of time", "text",
         _pause("daemon")),
    Kind("boardd restarted", REMOTE, WORKING, CONNECTION, "text", _restart, names=("last uri",),
         opening="text or error"),
    Kind("all of boardd killed", ("boardd",), RUNNING, CONNECTION, "error", _all_gone,
         names=("uri",)),
    Kind("connections cut", REMOTE, WORKING, CONNECTION, "text", _network("boards", Relay.cut),
         names=("last uri",), opening="text or error"),
    Kind("network parted", REMOTE, WORKING, CONNECTION, "text", _network("boards", Relay.part),
         names=("last uri",), undo=HEALED, opening="error"),
    Kind("network silent", REMOTE, WORKING, SILENCE, "text", _network("boards", Relay.silence),
         names=("last uri",), undo=HEALED, opening="error"),
    Kind("network silent for a while", REMOTE, WORKING, "nothing, or limits of time", "text",
         _network("boards", _hush)),
    Kind("cable between daemons cut", ("boardd",), RUNNING, LINKS, "text",
         _network("cable", Relay.cut)),
    Kind("cable between daemons parted", ("boardd",), RUNNING, LINKS, "text",
         _network("cable", Relay.part), undo=_network("cable", Relay.heal)),
    Kind("cable between daemons silent", ("boardd",), RUNNING, LINKS, "text",
         _network("cable", Relay.silence), undo=_network("cable", Relay.heal)),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
WITH_WORKER = ("worker", "fleet")


def phases_of(target: str) -> tuple[str, ...]:
    """Phases in which faults strike there."""
    return WORKING if target in WITH_WORKER else PHASES


def kinds_of(target: str, phase: str) -> list[Kind]:
    """Those that can strike there."""
    if phase not in phases_of(target):
        return []
    return [kind for kind in KINDS if target in kind.targets and phase in kind.phases]
