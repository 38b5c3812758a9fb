"""Engines of a campaign, opened once and used by many runs, and what is watched around a run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lora_host import emulated
from lora_host.errors import LoraError
from lora_lab.torture.folders import Folders
from lora_lab.torture.target import Target
from lora_sdk.engine.engine import Engine
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape

TREE = TreeShape.by_width((2, 2, 1))
SEQUENCES = 4
USES = 400
"""Runs after which an engine is opened anew: what piles up must not hide, nor blur the next run."""


class Watch:
    """Told by the engine. Plants what is due before a step, or once boards are restored."""

    def __init__(self) -> None:
        self.steps = 0
        self.seen: list[LoraError] = []
        self.before: dict[int, list[Callable[[], None]]] = {}
        self.when_restored: list[Callable[[], None]] = []

    def before_step(self) -> None:
        """See StepObserver."""
        self.strike(self.steps)
        self.steps += 1

    def strike(self, at: int) -> None:
        """Plant what is due then."""
        for plant in self.before.pop(at, ()):
            plant()

    def saw(self, error: LoraError) -> None:
        """See StepObserver."""
        if not any(error is one for one in self.seen):
            self.seen.append(error)

    def restored(self) -> None:
        """See StepObserver."""
        due, self.when_restored = self.when_restored, []
        for plant in due:
            plant()


class Rig:
    """Engines by number of boards, with look-up speculation or without."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._engines: dict[tuple[int, bool], tuple[Engine, list[int]]] = {}

    def engine(self, boards: int, speculative: bool = False) -> Engine:
        """One that is whole."""
        key = (boards, speculative)
        engine, uses = self._engines.get(key, (None, [0]))
        if engine is not None:
            whole = not engine.closed and not engine.cluster.closed and engine.lost is None
            if whole and engine.cluster.size == boards and uses[0] < USES:
                uses[0] += 1
                return engine
            self.drop(engine)
        opened = self.opened(boards, speculative)
        self._engines[key] = (opened, [1])
        return opened

    def opened(self, boards: int | None, speculative: bool = False, **options: Any) -> Engine:
        """A new one, which the caller closes. Without `boards`: on `devices`."""
        if speculative:
            options["speculation"] = SpeculationOptions("lookup", None, TREE)
        engine = Engine(
            self.folders.model,
            boards=boards,
            max_sequences=SEQUENCES,
            max_adapters=1,
            max_adapter_rank=4,
            prefix_cache=False,
            threads=1,
            **options,
        )
        for name in "ab":
            engine.load_adapter(name, self.folders.adapter(name))
        return engine

    def drop(self, engine: Engine) -> None:
        """Close it; the next run opens another one."""
        for key, (one, _) in list(self._engines.items()):
            if one is engine:
                del self._engines[key]
        engine.close()

    def close(self) -> None:
        """Close all."""
        for engine, _ in list(self._engines.values()):
            self.drop(engine)


def target_of(engine: Engine) -> Target:
    """The engine's boards."""
    boards = engine.cluster.emulated
    assert boards is not None
    return Target(boards, engine)


def newest_target() -> Target | None:
    """Boards that an engine is still opening."""
    boards = emulated.newest()
    return None if boards is None else Target(boards)


def descriptors() -> dict[str, str]:
    """Open descriptors of this process, and what they are of."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def resident_kib() -> int:
    """Resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def threads() -> int:
    """Threads of this process that Python knows."""
    return threading.active_count()
