"""Runs of a campaign: drawn from its seed, done, judged, and made smaller where they fail."""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from lora_host.cluster_file import Cable
from lora_host.errors import LoraError
from lora_lab.torture import ecc_faults
from lora_lab.torture import rig as rigs
from lora_lab.torture.faults import LATEST, MOST_FAULTS, SIZES, Fault, Run, draws_of
from lora_lab.torture.kinds import BY_NAME, STEPS, kinds_of
from lora_lab.torture.oracle import SECONDS, Judge, Observed
from lora_lab.torture.phases import PHASES, TRIGGER, Phase, trigger
from lora_lab.torture.rig import Rig, Watch
from lora_lab.torture.target import Target
from lora_sdk.engine.engine import Engine


def draw(seed: int, number: int) -> Run:
    """The run of this number."""
    draws = draws_of(seed, number)
    phase = draws.choice(tuple(PHASES))
    boards = draws.choice(SIZES)
    kinds = kinds_of(phase, boards)
    count = draws.choice((1, 1, 2, 3))
    faults = []
    for _ in range(min(count, MOST_FAULTS)):
        kind = draws.choice(kinds)
        board, at = draws.randrange(boards), draws.randrange(LATEST)
        faults.append(Fault(kind.name, board, at, kind.draw(draws)))
    return Run(number, phase, boards, tuple(faults))


@dataclass(frozen=True)
class Verdict:
    """Of one run. `problems`: empty where all was right. `smallest`: of a failed run, the faults
    without which it does not fail."""

    run: Run
    problems: tuple[str, ...]
    noticed: bool
    recovered: bool
    errored: bool
    seconds: float
    smallest: Run | None = None


class Campaign:
    """Does runs on emulated boards of this process. `blind`: for tests of the oracle, what is
    changed in an observation before it is judged."""

    def __init__(
        self, rig: Rig, blind: Callable[[Observed], None] | None = None, minimise: bool = True
    ) -> None:
        self._rig = rig
        self._blind = blind
        self._minimise = minimise
        self._wanted: dict[str, Any] = {}

    def verdict(self, run: Run) -> Verdict:
        """Do a run and judge it; do it again with fewer faults if it fails."""
        observed, problems = self._judged(run)
        smallest = None
        if problems and self._minimise:
            smallest = self._smaller(run)
        return Verdict(
            run,
            tuple(problems),
            observed.noticed,
            bool(observed.repaired),
            observed.error is not None,
            observed.seconds,
            smallest,
        )

    def _smaller(self, run: Run) -> Run:
        """Without the faults that the failure does not need."""
        index = 0
        while index < len(run.faults) and len(run.faults) > 1:
            less = run.without(index)
            if self._judged(less)[1]:
                run = less
            else:
                index += 1
        return run

    def _judged(self, run: Run) -> tuple[Observed, list[str]]:
        want = self._want(run.phase)
        self._want("decode")  # of the next request; no engine opens while another is watched
        with _quiet(), _limit(2 * SECONDS):
            observed, cables = self._observe(run)
        if self._blind is not None:
            self._blind(observed)
        phase = PHASES[run.phase]
        started = Fault(TRIGGER, self._triggered(run), 0) if phase.triggered else None
        without_recovery = phase.shuts or run.phase == "links"
        judge = Judge(run, BY_NAME, cables, without_recovery, started)
        return observed, judge.problems(observed, want)

    def _want(self, phase: str) -> Any:
        """The text without faults, of one board."""
        if phase not in self._wanted:
            observed, _ = self._observe(Run(-1, phase, 1, ()))
            assert observed.error is None, observed.error
            self._wanted[phase] = observed.text
        return self._wanted[phase]

    @staticmethod
    def _triggered(run: Run) -> int:
        """The board whose failure begins the recovery."""
        return run.number % run.boards

    def _observe(self, run: Run) -> tuple[Observed, tuple[Cable, ...]]:
        phase = PHASES[run.phase]
        if phase.opens:
            return self._while_opening(run, phase)
        engine = (
            self._rig.opened(run.boards)
            if phase.shuts
            else self._rig.engine(run.boards, phase.speculative)
        )
        target = rigs.target_of(engine)
        cables = target.cables
        observed, watch = Observed(), Watch()
        before = _Held(engine)
        self._arrange(run, phase, target, watch)
        recoveries, redone = engine.recovery_count, engine.redone_steps
        corrected = ecc_faults.corrected(engine)
        engine.observe(watch)
        began = time.monotonic()
        try:
            observed.text = phase.act(engine, watch)
            if run.phase in STEPS:
                engine.confirm()
        except Exception as error:  # the oracle says whether it may
            observed.error = error
        observed.seconds = time.monotonic() - began
        engine.observe(None)
        target.heal()
        observed.seen, observed.damaged = watch.seen, target.damaged
        observed.unreadable = target.unreadable
        observed.corrected = max(0, ecc_faults.corrected(engine) - corrected)
        self._count(engine, observed, recoveries, redone)
        if phase.shuts:
            engine.close()
        elif observed.error is not None or run.phase == "links":
            self._settle(engine, observed, run)
        observed.left += before.left()
        if observed.damaged:
            self._rig.drop(engine)  # what was not summed yet must not meet the next run
        return observed, cables

    def _count(self, engine: Engine, observed: Observed, recoveries: int, redone: int) -> None:
        count = engine.recovery_count - recoveries
        records = list(engine.recoveries)[-count:] if count else []
        observed.repaired = [record.cause for record in records]
        observed.left_out = [name for record in records for name in record.left_out]
        if not engine.cluster.closed:
            observed.redone = max(0, engine.redone_steps - redone)

    def _settle(self, engine: Engine, observed: Observed, run: Run) -> None:
        """After an error: another text must be right, or the engine says that it is lost."""
        try:
            if engine.lost is None:
                text = PHASES["decode"].act(engine, Watch())
                if text != self._want("decode"):
                    observed.left.append("wrong text of the next request")
        except LoraError:
            pass
        except TimeoutError as error:
            observed.left.append(f"the next request: {error}")
        self._rig.drop(engine)

    def _arrange(self, run: Run, phase: Phase, target: Target, watch: Watch) -> None:
        for fault in run.faults:
            plant = partial(BY_NAME[fault.kind].plant, target, fault)
            if phase.triggered:
                watch.when_restored.append(plant)
            else:
                watch.before.setdefault(self._moment(run, fault), []).append(plant)
        if phase.triggered:
            board, kind = trigger(self._triggered(run))
            watch.before[1] = [partial(target.fault, board, kind)]

    @staticmethod
    def _moment(run: Run, fault: Fault) -> int:
        """Step before which it strikes; phases that are one call have one moment."""
        at_once = run.phase in ("links", "close")
        return 0 if at_once else min(fault.at, 2) if run.phase in SHORT else fault.at

    def _while_opening(self, run: Run, phase: Phase) -> tuple[Observed, tuple[Cable, ...]]:
        observed, watch = Observed(), Watch()
        held = _Held()
        cables: tuple[Cable, ...] = ()
        targets: list[Target] = []

        def placed(done: int, total: int) -> None:
            if not targets:
                found = rigs.newest_target()
                assert found is not None
                targets.append(found)
                for fault in run.faults:
                    BY_NAME[fault.kind].plant(found, fault)

        began = time.monotonic()
        engine: Engine | None = None
        try:
            engine = self._rig.opened(run.boards, progress=placed)
        except Exception as error:
            observed.error = error
        else:
            engine.observe(watch)
            cables = rigs.target_of(engine).cables
            try:
                observed.text = phase.act(engine, watch)
            except Exception as error:
                observed.error = error
            observed.seen = watch.seen
            self._count(engine, observed, 0, 0)
            engine.close()
        observed.seconds = time.monotonic() - began
        del targets[:]
        engine = None
        if observed.error is not None:
            traceback.clear_frames(observed.error.__traceback__)  # which hold the boards
        observed.left += held.left()
        return observed, cables


SHORT = ("prefill", "hand-over", "adapter load")
"""Phases of few steps."""


class _Held:
    """What an engine holds between requests."""

    def __init__(self, engine: Engine | None = None) -> None:
        self._engine = engine
        self._pages = 0 if engine is None else engine.kv_use.held
        self._descriptors = rigs.descriptors()
        self._threads = rigs.threads()

    def left(self) -> list[str]:
        """What is held now and was not before."""
        found, engine = [], self._engine
        if engine is not None and not engine.closed:
            engine.settle()
            if engine.kv_use.held > self._pages:
                found.append(f"{engine.kv_use.held - self._pages} pages")
        if len(rigs.descriptors()) > len(self._descriptors):
            gc.collect()  # what an error's frames hold in circles
        now = rigs.descriptors()
        if len(now) > len(self._descriptors):
            more = [path for name, path in now.items() if name not in self._descriptors]
            found.append(f"descriptors of {', '.join(more)}")
        if rigs.threads() > self._threads:
            found.append(f"{rigs.threads() - self._threads} threads")
        return found


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """TimeoutError inside a run that does not end; without effect beside the main thread."""

    def hangs(*_: object) -> None:
        raise TimeoutError(f"no end within {seconds:.0f} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)


@contextmanager
def _quiet() -> Iterator[None]:
    """Recoveries are expected here: they are counted, not logged."""
    log = logging.getLogger("lora_sdk.recovery")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
