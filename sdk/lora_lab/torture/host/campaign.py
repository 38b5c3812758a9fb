"""Runs of processes: drawn from the seed, done in an engine's process of their own, and judged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lora_host.errors import TransportError, one_line
from lora_lab.torture.campaign import Verdict
from lora_lab.torture.faults import Fault, Run, draws_of
from lora_lab.torture.folders import Folders, write_folders
from lora_lab.torture.host.child import MOMENT, NONE
from lora_lab.torture.host.kinds import BY_NAME, Kind, kinds_of, phases_of
from lora_lab.torture.host.places import BOARDS, PLACES, Place

SECONDS = 150.0  # of a run: loading a container alone may take 120 s until it is given up
LIMIT = 210.0
LEFT_S = 5.0  # until what a process has started has ended too
CHILD = "lora_lab.torture.host.child"


def draw(target: str, seed: int, number: int) -> Run:
    """The run of this number."""
    draws = draws_of(seed, number)
    phase = draws.choice([one for one in phases_of(target) if kinds_of(target, one)])
    kind = draws.choice(kinds_of(target, phase))
    return Run(number, phase, BOARDS, (Fault(kind.name, 0, 0),), target)


@dataclass(frozen=True)
class Ended:
    """How an engine's process has ended. `said`: what it printed besides, and on stderr. `handed`:
    prompts that a worker has computed. `left`: processes that it has started and left.
    `struck`: whether the fault's moment has come."""

    text: Any
    error: str
    code: int
    seconds: float
    said: str
    handed: int = 0
    left: int = 0
    struck: bool = True


class HostCampaign:
    """Of one target. Each run has boards of its own. `child`: the module that is the engine's
    process, and words before its own; another one for tests of the oracle."""

    def __init__(self, target: str, root: Path, child: Sequence[str] = (CHILD,)) -> None:
        self._target = target
        self._child = child
        self._root = root
        whole = root / "whole"
        whole.mkdir()
        self._folders = write_folders(whole)
        self._wanted: dict[str, Any] = {}

    def verdict(self, run: Run) -> Verdict:
        """Do a run and judge it."""
        kind = BY_NAME[run.faults[0].kind]
        with PLACES[self._target]() as place:
            want = self._want(place, run.phase)
            before = _locks(place)
            ended = self._disturbed(place, run.phase, kind)
            problems = list(_wrong_end(kind, run.phase, place, ended, want))
            if kind.undo is not None:
                kind.undo(place, 0, self._folders.model)
            problems += place.left()
            if kind.undo is not None or kind.ends in ("killed", "text"):
                after = self._run(place, self._folders, run.phase)  # boards are free, and right
                if after.text != want:
                    problems.append(f"the next process: {after.error or after.said or after.text}")
                problems += place.left()
            if _locks(place) != before:
                problems.append("locks of boards are held")
        return Verdict(
            run, tuple(problems), ended.text is None, ended.text is not None,
            bool(ended.error), ended.seconds,
        )  # fmt: skip

    def _want(self, place: Place, phase: str) -> Any:
        if phase not in self._wanted:
            found = self._run(place, self._folders, phase)
            if found.text is None or not found.handed:
                why = one_line(found.error or found.said or f"exit code {found.code}")
                raise TransportError(
                    f"a run of {phase} without a fault did not end with a text: {why}; expected "
                    "boards that work, and a machine with time for them"
                )
            self._wanted[phase] = found.text
        return self._wanted[phase]

    def _disturbed(self, place: Place, phase: str, kind: Kind) -> Ended:
        """On folders of its own, which a fault may damage."""
        with tempfile.TemporaryDirectory(dir=self._root) as root:
            shutil.copytree(self._folders.root, root, dirs_exist_ok=True)
            folders = Folders(Path(root))
            if kind.before and kind.act is not None:
                kind.act(place, 0, folders.model)
                return self._run(place, folders, phase)
            return self._run(place, folders, phase, kind)

    def _run(self, place: Place, folders: Folders, phase: str, kind: Kind | None = None) -> Ended:
        named = NONE if kind is None else kind.name
        words = [*self._child, self._target, phase, named, str(folders.root), *place.uris]
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**place.variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,  # XRT ends whole process groups
        )  # fmt: skip
        try:
            began, said = time.monotonic(), ""
            if kind is not None and kind.act is not None:
                began, said = _strike(kind, phase, place, process, folders)
            return _end(process, place, began, said)
        except BaseException:  # Ctrl-C
            _kill(process)
            process.wait()
            raise


def _strike(
    kind: Kind, phase: str, place: Place, process: subprocess.Popen[str], folders: Folders
) -> tuple[float, str]:
    """Wait for the fault's moment, and act. When that was, or what the process has said instead."""
    assert process.stdin is not None and process.stdout is not None and kind.act is not None
    act = partial(kind.act, place, process.pid, folders.model)
    line = process.stdout.readline()
    if line.strip() != MOMENT:
        return time.monotonic(), line
    if phase not in place.moments:
        act()
        began = time.monotonic()
        _go_on(process)
        return began, ""
    with place.networks["boards"].held_after(place.moments[phase]) as reached:
        _go_on(process)
        if not reached(LIMIT):
            raise TransportError(f"{phase}: no {place.moments[phase]} B have come from the worker")
        act()
        return time.monotonic(), ""


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # of a host that was killed
        process.stdin.write("\n")
        process.stdin.flush()


def _kill(process: subprocess.Popen[str]) -> None:
    """It, and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[str], place: Place, began: float, instead: str) -> Ended:
    """`instead`: what the process has said before any fault."""
    late = ""
    try:
        process.wait(LIMIT)  # not the end of its streams: XRT's processes hold them as well
    except subprocess.TimeoutExpired:
        late = f"no end within {LIMIT:.0f} s"
    seconds = time.monotonic() - began
    left = _left_by(process.pid) if place.alone else 0
    _kill(process)
    place.end()
    out, error = process.communicate(timeout=LIMIT)
    found: dict[str, Any] = {}
    with suppress(ValueError, IndexError):
        found = json.loads((instead + out).splitlines()[-1])
    return Ended(
        found.get("text"), found.get("error", ""), process.returncode, seconds,
        late or error[-300:], found.get("handed", 0), left, not instead,
    )  # fmt: skip


def _wrong_end(kind: Kind, phase: str, place: Place, ended: Ended, want: Any) -> Iterator[str]:
    ends = kind.ends_in(phase)
    if not ended.struck:
        yield "the fault has not struck"
    if ended.left:
        yield f"{ended.left} processes left"
    if ended.seconds > SECONDS:
        yield f"took {ended.seconds:.0f} s, {SECONDS:.0f} s expected"
    if ends == "killed":
        if ended.code != -signal.SIGKILL:
            yield f"ended with {ended.code}, {-signal.SIGKILL} expected"
        return
    if ended.error:
        wanted = tuple(word for name in kind.names for word in _words(name, place))
        if ends == "text":
            yield f"error where a text was possible: {ended.error}"
        if "\n" in ended.error or (wanted and not any(one in ended.error for one in wanted)):
            yield f"error that names none of {wanted}: {ended.error}"
    elif ended.code != 0:
        yield f"exit code {ended.code} without an error of its own: {ended.said}"
    elif ends == "error":
        yield "a text where an error was expected"
    elif ended.text != want:
        yield f"text {str(ended.text)[:120]}, {str(want)[:120]} expected"


def _words(name: str, place: Place) -> Sequence[str]:
    """What a name of a kind stands for."""
    return {"uri": place.uris, "last uri": place.uris[-1:]}.get(name, (name,))


def _left_by(session: int) -> int:
    """Processes of a session whose first one has ended; after a while."""
    end = time.monotonic() + LEFT_S
    while (count := _processes_of(session)) and time.monotonic() < end:
        time.sleep(0.05)
    return count


def _processes_of(session: int) -> int:
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            count += fields[3] == str(session) and fields[0] != "Z"
    return count


def _locks(place: Place) -> list[str]:
    """Locks of boards that a process holds."""
    folder = place.variables.get("LORA_LOCK_FOLDER")
    if folder is None:
        return []
    held = Path("/proc/locks").read_text().split()
    return sorted(
        path.name for path in Path(folder).iterdir()
        if any(word.endswith(f":{path.stat().st_ino}") for word in held)
    )  # fmt: skip
