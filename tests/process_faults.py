"""Processes around two boards that end or stop while an engine runs in another process: it ends in
the tokens it would have had, or in one error, and what comes after it finds its boards free.

`python -m tests.process_faults` measures all and writes the table into docs/recovery.md; with
SITUATION FOLDER [URI ...] it is that engine's process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_host.device_process.__main__ import FOLDER_VARIABLE
from lora_host.errors import LoraError
from lora_host.vrtd_mock.process import MockServer
from tests import fault_xrt
from tests.fault_table import BOARDS, SITUATIONS, options_of, table, write_between
from tests.processes import environment
from tests.recovery_rig import Folders, folders_at, opened, write_folders

LIMIT = 180.0  # seconds until the engine's process has ended
PLANT = "plant"
BEGIN, END = "<!-- measured processes -->", "<!-- end of measured processes -->"


@dataclass(frozen=True)
class Place:
    """Boards, and the processes around them. `uris`: none for boards of the engine's process."""

    variables: Mapping[str, str]
    uris: Sequence[str]
    processes: Mapping[str, Callable[[], int]]  # names -> process ids
    end: Callable[[], None] = lambda: None  # of those that are stopped


@contextmanager
def emulated() -> Iterator[Place]:
    """Boards of the engine's own process."""
    yield Place(os.environ, (), {})


@contextmanager
def slash() -> Iterator[Place]:
    """Boards of the mock server for vrtd."""
    with (
        tempfile.TemporaryDirectory(prefix="lora-locks-") as locks,
        MockServer(BOARDS, ["--speed", "10"]) as server,
    ):
        named = {"LORA_LOCK_FOLDER": locks, "LORA_VRTD_SOCKET": str(server.socket)}
        pid = server.process.pid
        yield Place({**os.environ, **named}, server.uris, {"daemon": lambda: pid})
        os.kill(pid, signal.SIGCONT)


@contextmanager
def xrt() -> Iterator[Place]:
    """Boards behind the real XRT's software emulation. Its cluster process is the daemon."""
    with fault_xrt.environment() as place:
        inside = (FOLDER_VARIABLE + "=" + str(place.folder)).encode()

        def cluster() -> int:
            return _only(b"lora_host.device_process.cluster_process\0", inside)

        def device() -> int:
            return _only(b"lora_host.device_process\0", inside, b"EMULATION_SOCKETID=device1_")

        uris = tuple(f"xrt:{board}" for board in range(BOARDS))
        named = {"daemon": cluster, "device process": device}
        yield Place(place.variables, uris, named, lambda: _end_stopped(inside))


PLACES = {"emu": emulated, "xrt": xrt, "slash": slash}


def _found(part: bytes, *variables: bytes) -> list[int]:
    """Processes whose command line has `part` and whose environment begins lines with these."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, lines = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if part in words and all(b"\0" + one in b"\0" + lines for one in variables):
            found.append(int(path.name))
    return found


def _only(part: bytes, *variables: bytes) -> int:
    (found,) = _found(part, *variables)
    return found


def _end_stopped(*variables: bytes) -> None:
    for process in _found(b"lora_host.device_process.cluster_process\0", *variables):
        if "\nState:\tT" in Path(f"/proc/{process}/status").read_text():
            os.kill(process, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """How the engine's process ended. `tokens`: None where it has none; `error`: its one error;
    `seconds`: from the fault to the end."""

    tokens: list[int] | None
    want: list[int]
    error: str
    code: int
    seconds: float
    uris: Sequence[str]
    left_out: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the tokens are the undisturbed ones."""
        return self.tokens == self.want

    def check(self, where: str, variant: str) -> None:
        """AssertionError unless it ended as it must, within its bound: with the undisturbed tokens
        where a recovery can help, else with one error that names the boards by their URIs and says
        of units."""
        assert self.seconds < BOUNDS[where, variant], self
        assert self.same == (variant in GOES_ON) and self.code == (not self.same), self
        assert self.same or all(uri in self.error for uri in self.uris), self
        assert self.same or "unit: none" in self.error, self  # the boards' units did not fail
        assert "\n" not in self.error, self

    def __str__(self) -> str:
        return f"{self.seconds:.1f}" if self.same else f"error, {self.seconds:.1f}"


def _start(place: Place, situation: str, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.process_faults", situation, str(root), *place.uris],
        env={**place.variables, "PYTHONPATH": environment()["PYTHONPATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # XRT ends whole process groups
    )


def disturbed(
    place: Place, folders: Folders, situation: str, act: Callable[[int], None] | None
) -> Ended:
    """The situation; `act` is called with the process's id at its fault. AssertionError if the
    process does not end."""
    process = _start(place, situation, folders.root)
    assert process.stdin is not None and process.stdout is not None
    want: list[int] = []
    began = time.monotonic()
    for line in process.stdout:
        if line.strip() == PLANT:
            break
        said = json.loads(line)
        assert "want" in said, f"before the fault: {said}"
        want = said["want"]
    else:
        raise AssertionError(f"no fault: {process.communicate()}")
    if act is not None:
        act(process.pid)
        began = time.monotonic()
    with suppress(BrokenPipeError):  # of a host that was killed
        process.stdin.write("\n")
        process.stdin.flush()
    try:
        process.wait(LIMIT)  # not the end of its streams: XRT's processes hold them as well
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"no end within {LIMIT} s") from None
    took = time.monotonic() - began
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    place.end()
    out, error = process.communicate(timeout=LIMIT)
    last: dict[str, Any] = json.loads(out.splitlines()[-1]) if out.strip() else {}
    told = str(last.get("error", "" if last else error.strip()))
    left_out = tuple(last.get("left_out", ()))
    return Ended(last.get("tokens"), want, told, process.returncode, took, place.uris, left_out)


def send(number: signal.Signals, name: str) -> Callable[[Place, int], None]:
    """A signal to a process of the place, "host" for the engine's."""

    def act(place: Place, host: int) -> None:
        os.kill(host if name == "host" else place.processes[name](), number)

    return act


VARIANTS: dict[str, Callable[[Place, int], None]] = {
    "device process killed": send(signal.SIGKILL, "device process"),
    "daemon killed": send(signal.SIGKILL, "daemon"),
    "daemon stopped": send(signal.SIGSTOP, "daemon"),
    "host killed": send(signal.SIGKILL, "host"),
}
GOES_ON = ("device process killed", "host killed")
APPLIES = {
    "emu": ("host killed",),
    "xrt": tuple(VARIANTS),
    "slash": ("daemon killed", "daemon stopped", "host killed"),
}


# Seconds, measured, until the engine's process has ended; half of each or more is left to a busy
# machine. For an error: a call's limit and that of a register behind XRT; of vrtd's boards a step's
# and one silence of the daemon (transport_xrt_watchdog.h, transport_slash_watchdog.c).
BOUNDS = {
    ("emu", "host killed"): 60.0,
    ("xrt", "device process killed"): 60.0,
    ("xrt", "daemon killed"): 30.0,
    ("xrt", "daemon stopped"): 30.0,
    ("xrt", "host killed"): 60.0,
    ("slash", "daemon killed"): 10.0,
    ("slash", "daemon stopped"): 28.0,
    ("slash", "host killed"): 60.0,
}


def outcome(folders: Folders, where: str, variant: str, situation: str) -> Ended:
    """One cell. After a host that was killed: how the next one ends, undisturbed."""
    with PLACES[where]() as place:
        found = disturbed(place, folders, situation, lambda host: VARIANTS[variant](place, host))
        if variant != "host killed":
            return found
        assert found.code == -signal.SIGKILL and found.tokens is None
        following = disturbed(place, folders, situation, None)
        assert following.want == found.want
        return following


def _wait_for_fault() -> None:
    print(PLANT, flush=True)
    sys.stdin.readline()


def engine_process(situation: str, root: str, *uris: str) -> int:
    """Runs the situation twice, the second time with the fault. Returns the exit code."""
    folders = folders_at(Path(root))
    boards = None if uris else BOARDS
    try:
        with opened(folders, boards, devices=uris, **options_of(folders, situation)) as engine:
            act = SITUATIONS[situation]
            print(json.dumps({"want": act(engine, lambda: None)}), flush=True)
            tokens = act(engine, _wait_for_fault)
            left_out = [name for record in engine.recoveries for name in record.left_out]
            print(json.dumps({"tokens": tokens, "left_out": left_out}), flush=True)
    except LoraError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


def main() -> None:
    """Measure and write the page."""
    cells: dict[tuple[str, str, str], str] = {}
    with tempfile.TemporaryDirectory() as root:
        folders = write_folders(Path(root))
        for situation in SITUATIONS:
            for place, variants in APPLIES.items():
                for variant in variants:
                    found = outcome(folders, place, variant, situation)
                    found.check(place, variant)
                    cells[place, variant, situation] = str(found)
                    print(situation, place, variant, found, file=sys.stderr, flush=True)
    rows = {
        variant: "; ".join(
            f"{BOUNDS[w, variant]:g}" if (w, variant) in BOUNDS else "-" for w in APPLIES
        )
        for variant in VARIANTS
    }
    lines = table(rows, tuple(SITUATIONS), tuple(APPLIES), lambda *key: cells.get(key, "-"))
    write_between(BEGIN, END, lines)


if __name__ == "__main__":
    sys.exit(engine_process(*sys.argv[1:]) if sys.argv[1:] else main())
