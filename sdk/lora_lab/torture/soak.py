"""A soak: mixed requests for hours on boards that fail now and then. Texts must be the undisturbed
ones, and what the process holds must settle."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.error import URLError

from lora_host.errors import LoraError
from lora_lab.torture import rig as rigs
from lora_lab.torture.faults import Fault, Run
from lora_lab.torture.kinds import BY_NAME, KINDS, Kind
from lora_lab.torture.oracle import Judge, Observed
from lora_lab.torture.soak_load import ADAPTERS, Asked, all_requests, ask, drawn
from lora_lab.torture.soak_report import Held, SoakReport, Took
from lora_lab.torture.soak_server import Serving, serving
from lora_sdk.engine.engine import Engine
from lora_sdk.model.demo import demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions

CALLERS = 6
SEQUENCES = 16
RECENT = 4  # faults that may explain an error
REPEATED = ("board leaves the bus",)
"""Faults that cost a board for good: an engine would soon have none."""
LATENT = "two bits of "
"""Begins the names of faults that stay until a word is read: too late for `RECENT`."""
PHASES = {"decode", "own loop", "verify", "adapter load"}


def soak_kinds(boards: int) -> list[Kind]:
    """Faults that strike while steps run and that a recovery in place repairs."""
    return [
        kind for kind in KINDS
        if PHASES & set(kind.phases) and kind.name not in REPEATED and boards >= kind.least
        and not kind.name.startswith(LATENT)
    ]  # fmt: skip


class Faults:
    """Plants a fault now and then, before a step; told of failures by the engine. One engine's."""

    def __init__(self, engine: Engine, draws: random.Random, every: float, report: SoakReport):
        self._target = rigs.target_of(engine)
        self._draws, self._every, self._report = draws, every, report
        self._kinds = soak_kinds(engine.cluster.size)
        self._boards = engine.cluster.size
        self._due = time.monotonic() + self._wait()
        self.recent: deque[Fault] = deque(maxlen=RECENT)

    def _wait(self) -> float:
        return self._draws.expovariate(1.0 / self._every) if self._every else float("inf")

    def before_step(self) -> None:
        """See StepObserver."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._wait()
        kind = self._draws.choice(self._kinds)
        fault = Fault(kind.name, self._draws.randrange(self._boards), 0, kind.draw(self._draws))
        self._target.heal()
        self.recent.append(fault)
        self._report.faults[kind.name] += 1
        kind.plant(self._target, fault)

    def saw(self, error: LoraError) -> None:
        """See StepObserver."""
        if not self.explain(error):
            self._report.problem(f"named wrongly: {error}; faults {list(self.recent)}")

    def restored(self) -> None:
        """See StepObserver."""

    def explain(self, error: LoraError) -> bool:
        """Whether one of the last faults does."""
        run = Run(0, "decode", self._boards, tuple(self.recent))
        judge = Judge(run, BY_NAME, self._target.cables, False)
        return not judge.problems(Observed(text=1, seen=[error]), 1)


class Soak:
    """`every`: mean seconds from a fault to the next, 0: none. `progress` is told of seconds."""

    def __init__(
        self, seconds: float, seed: int, every: float, boards: int = 2,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:  # fmt: skip
        self._seconds, self._seed, self._every, self._boards = seconds, seed, every, boards
        self._progress = progress
        self._report = SoakReport(seconds, seed, boards)
        self._wanted: dict[Asked, str] = {}
        self._began = 0.0
        self._over = threading.Event()

    def run(self) -> SoakReport:
        """Soak, and judge what was seen."""
        with serving(lambda progress: self._open()) as served:
            self._wanted = {one: ask(served.engine, one, served.url) for one in all_requests()}
        del served
        gc.collect()
        descriptors, threads = rigs.descriptors(), rigs.threads()
        self._began = time.monotonic()
        end = self._began + self._seconds
        while time.monotonic() < end:
            self._report.opened += 1
            with serving(lambda progress: self._open()) as served:
                self._load(served, end)
            del served
        gc.collect()
        more = [path for name, path in rigs.descriptors().items() if name not in descriptors]
        # FastAPI's cache of routes keeps a closed server, and with it the file of its model.
        if len(rigs.descriptors()) > len(descriptors) + self._report.opened:
            self._report.problem(f"descriptors left: {', '.join(more)}")
        if rigs.threads() > threads:
            self._report.problem(f"{rigs.threads() - threads} threads left")
        self._report.judge_memory()
        return self._report

    def _open(self) -> Engine:
        engine = Engine(
            demo_model_path(), boards=self._boards, max_sequences=SEQUENCES,
            max_adapters=len(ADAPTERS), speculation=SpeculationOptions("lookup", None, rigs.TREE),
        )  # fmt: skip
        for name, folder in ADAPTERS.items():
            engine.load_adapter(name, folder)
        return engine

    def _load(self, served: Serving, end: float) -> None:
        """Callers on one engine until the end, or until it has lost a board."""
        engine, number = served.engine, self._report.opened
        faults = Faults(engine, random.Random(f"soak {self._seed} {number}"), self._every,
                        self._report)  # fmt: skip
        engine.observe(faults)
        self._over.clear()
        callers = [
            threading.Thread(target=self._call, args=(served, faults, number, caller))
            for caller in range(CALLERS)
        ]
        for thread in callers:
            thread.start()
        try:
            while time.monotonic() < end and any(thread.is_alive() for thread in callers):
                self._look()
                if engine.lost is not None or engine.cluster.size < self._boards:
                    break
                self._over.wait(min(1.0, max(0.0, end - time.monotonic())))
        finally:
            self._over.set()
            for thread in callers:
                thread.join()
            engine.observe(None)
            self._report.recoveries += engine.recovery_count

    def _look(self) -> None:
        now = time.monotonic() - self._began
        self._progress(int(min(now, self._seconds)), int(self._seconds))
        self._report.held.append(
            Held(now, rigs.resident_kib(), len(rigs.descriptors()), rigs.threads())
        )

    def _call(self, served: Serving, faults: Faults, number: int, caller: int) -> None:
        draws = random.Random(f"caller {self._seed} {number} {caller}")
        while not self._over.is_set():
            asked, began, clock = drawn(draws), time.monotonic(), time.time()
            try:
                text = ask(served.engine, asked, served.url)
            except (LoraError, URLError, TimeoutError) as error:
                self._note_error(asked, error, faults, served)
                continue
            now = time.monotonic()
            if text != self._wanted[asked] and not _is_told(served.engine, clock):
                self._report.problem(f"{asked}: {text[:80]!r}, {self._wanted[asked][:80]!r}")
            self._report.took.append(Took(asked.kind, now - self._began, now - began))

    def _note_error(self, asked: Asked, error: Any, faults: Faults, served: Serving) -> None:
        """Requests may end with an error once they had tokens from damaged weights; all do once the
        boards are lost."""
        lost = served.engine.lost is not None or served.engine.closed
        damaged = any(BY_NAME[one.kind].ends != "text" for one in faults.recent)
        allowed = lost or (faults.explain(error) if isinstance(error, LoraError) else damaged)
        self._report.errors[asked.kind] += 1
        if not allowed:
            self._report.problem(f"{asked}: {type(error).__name__}: {error}")


def _is_told(engine: Engine, since: float) -> bool:
    """Whether the engine tells of weights that were damaged then, by time.time()."""
    with suppress(LoraError):
        engine.confirm()
    return any(notice.when >= since for notice in engine.weight_notices.latest)
