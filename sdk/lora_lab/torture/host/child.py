"""The engine's process of a run: `python -m lora_lab.torture.host.child TARGET PHASE KIND ROOT
[URI ...]`. At the fault's moment it either acts itself or says so and waits for a line. It prints
its text, or its one error, as a line of JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers  # noqa: F401  (so that a limit meets the engine, not an import)

from lora_host.errors import LoraError
from lora_lab.torture.folders import Folders
from lora_lab.torture.host.engines import ENGINES, handed_over
from lora_lab.torture.phases import PHASES
from lora_lab.torture.rig import Rig, Watch
from lora_sdk.engine.engine import Engine

MOMENT = "moment"
NONE = "-"  # the kind of an undisturbed run
OPEN, LOAD, HAND_OVER = "open", "load", "hand-over"
ACTS = {OPEN: "load", LOAD: "load", HAND_OVER: "prefill"}
"""Phases of processes that do what another phase of engines does."""
BY_BYTES = dict.fromkeys(("worker", "fleet"), ("prefill", HAND_OVER))
"""Phases of targets whose fault strikes once bytes have come from the worker."""
STEP = 1  # before which step faults strike
MARGIN = 4 << 20  # bytes that a limited process may take yet


def limit_descriptors(engine: Engine | None) -> None:
    """No descriptor more than are open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))


def limit_memory(engine: Engine | None) -> None:
    """Hardly more address space than there is."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + MARGIN
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def fill_disk(engine: Engine | None) -> None:
    """No file can grow."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def take_pages(engine: Engine) -> None:
    """Sequences of the token API hold all pages."""
    for _ in range(engine.plan.max_sequences):
        engine.prefill(engine.open_sequence(), [5] * (engine.context - 1))


OWN: dict[str, Callable[[Engine | None], None]] = {
    "descriptors exhausted": limit_descriptors,
    "memory limit": limit_memory,
    "disk full": fill_disk,
}
"""What the process does to itself, in the middle of a step."""
PAGES = "pages exhausted"
"""Happens before the request, which then finds none."""


def _moment(kind: str, engine: Engine | None) -> None:
    if kind in OWN:
        OWN[kind](engine)
    elif kind != NONE:
        print(MOMENT, flush=True)
        sys.stdin.readline()


def _texts(target: str, phase: str, kind: str, root: Path, uris: tuple[str, ...]) -> Any:
    rig = Rig(Folders(root))
    acted = PHASES[ACTS.get(phase, phase)]
    told = False

    def placed(done: int, total: int) -> None:
        nonlocal told
        if phase == LOAD and not told:
            told = True
            _moment(kind, None)

    if phase == OPEN:
        _moment(kind, None)
    with ENGINES[target](rig, uris, acted.speculative, progress=placed) as (opened, engines):
        watch = Watch()
        if kind == PAGES:
            take_pages(engines[0])
        elif target in BY_BYTES and phase in BY_BYTES[target]:
            _moment(kind, engines[0])
        elif phase not in (OPEN, LOAD):
            watch.before[STEP] = [lambda: _moment(kind, engines[0])]
            for engine in engines:
                engine.observe(watch)
        return {"text": acted.act(opened, watch), "handed": handed_over(target, opened)}


def main(target: str, phase: str, kind: str, root: str, *uris: str) -> int:
    """0: it has printed its text; 1: its error."""
    try:
        print(json.dumps(_texts(target, phase, kind, Path(root), uris)), flush=True)
    except LoraError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
