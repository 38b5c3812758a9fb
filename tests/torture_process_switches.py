"""What must be found by whom, of the faults of processes: each kind, and what is turned off in the
engine's process so that a campaign must fail. A further kind is a row here, or a reason in BENIGN.

As a program it is that process: `python -m tests.torture_process_switches SWITCH TARGET ...`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from lora_lab.torture.host import child
from lora_lab.torture.rig import Rig
from lora_sdk.engine.handover import Handover

KEEPS_S = 45.0


def _without_recovery() -> None:
    """A failure of a board ends what runs."""
    opened = Rig.opened

    def without(self: Rig, *given: Any, **options: Any) -> Any:
        return opened(self, *given, **{**options, "recovery": "off"})

    Rig.opened = without  # type: ignore[method-assign]


def _any_worker_is_done() -> None:
    """Nobody looks whether a worker has computed the prompt."""
    Handover._complete = property(lambda self: True)  # type: ignore[assignment,misc]


def _boards_are_kept() -> None:
    """A process that outlives the host keeps what it had open."""
    moment = child._moment

    def forked(kind: str, engine: Any) -> None:
        if kind != child.NONE and os.fork() == 0:
            os.setsid()
            for stream in range(3):
                os.close(stream)
            time.sleep(KEEPS_S)
            os._exit(0)
        moment(kind, engine)

    child._moment = forked


SWITCHES: dict[str, Callable[[], None]] = {
    "no recovery": _without_recovery,
    "any worker is done": _any_worker_is_done,
    "boards are kept": _boards_are_kept,
}


class Detection(NamedTuple):
    """Of a kind: where it strikes, and what is turned off."""

    kind: str
    target: str
    phase: str
    switch: str


OFF = (
    Detection("host killed", "boardd", "decode", "boards are kept"),
    Detection("host killed", "slash", "decode", "boards are kept"),
    Detection("device process killed", "xrt", "decode", "no recovery"),
    Detection("daemon restarted", "slash", "decode", "no recovery"),
    Detection("boardd killed", "boardd", "decode", "no recovery"),
    Detection("boardd killed", "worker", "hand-over", "any worker is done"),
    Detection("boardd stopped", "boardd", "decode", "no recovery"),
    Detection("boardd stopped", "worker", "prefill", "any worker is done"),
    Detection("boardd restarted", "boardd", "decode", "no recovery"),
    Detection("boardd restarted", "worker", "hand-over", "any worker is done"),
    Detection("connections cut", "boardd", "decode", "no recovery"),
    Detection("network parted", "boardd", "decode", "no recovery"),
    Detection("network silent", "boardd", "decode", "no recovery"),
    Detection("cable between daemons cut", "boardd", "decode", "no recovery"),
    Detection("cable between daemons parted", "boardd", "decode", "no recovery"),
    Detection("cable between daemons silent", "boardd", "decode", "no recovery"),
)

TIME, LIMITED = "the limits leave it time", "limits of calls, without which one has no end"
SYSTEM, PARSER = "the system refuses", "a parser of files, held by its own tests and by fuzzing"
BENIGN: dict[str, str] = {
    "host stopped": TIME,
    "descriptors exhausted": SYSTEM,
    "memory limit": SYSTEM,
    "disk full": SYSTEM,
    "pages exhausted": "there is no page to give",
    "bank full": "vrtd has no buffer to give",
    "weights cut short": PARSER,
    "weights' header garbled": PARSER,
    "configuration garbled": PARSER,
    "device process stopped": "boards run in another process; XRT's close waits a minute for it",
    "device process stopped for a while": TIME,
    "daemon killed": LIMITED,
    "daemon stopped": LIMITED,
    "daemon stopped for a while": TIME,
    "boardd stopped for a while": TIME,
    "network silent for a while": TIME,
    "all of boardd killed": "every access fails: there is nothing to go on with",
}
"""Kinds without one switch, and why."""


if __name__ == "__main__":
    SWITCHES[sys.argv[1]]()
    sys.exit(child.main(*sys.argv[2:]))
