"""A process that is kept running: started again with pauses, ended with its keeper."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lora_cluster.replicas import supervised_process
from lora_cluster.replicas.supervised_process import KeptProcess, KeptState, Pauses
from lora_host.errors import TransportError

QUICK = Pauses(first=0.01, most=0.02)
SLOW = Pauses(first=3600.0, most=3600.0)
SERVES = (
    "import sys; print('no cable yet', file=sys.stderr); print('ready', flush=True); "
    "sys.stdin.read()"
)
FAILS = "import sys; sys.exit('the board is held')"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\n" + (
    "while True: time.sleep(1)"
)
FRESH = KeptState()
END_S = 60.0


@contextmanager
def kept(
    code: str | Callable[[], list[str]], pauses: Pauses, before: KeptState = FRESH
) -> Iterator[KeptProcess]:
    command = code if callable(code) else lambda: [sys.executable, "-c", str(code)]
    process = KeptProcess("test", command, pauses, before)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + END_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_started_again_and_the_cause_is_kept() -> None:
    with kept(SERVES, QUICK) as process:
        until(lambda: process.state.told == "ready")
        first = process.state
        assert first.pid is not None and (first.restarts, first.cause) == (0, "")
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: process.state.restarts == 1 and process.state.told == "ready")
        second = process.state
        assert second.pid not in (None, first.pid)
        assert second.cause == f"process {first.pid} was ended by SIGKILL"
    assert second.pid is not None and not runs(second.pid)
    assert process.state.pid is None and process.state.told is None


def test_what_it_said_last_is_the_cause() -> None:
    with kept(FAILS, QUICK) as process:
        until(lambda: process.state.restarts >= 2)
        assert process.state.cause.endswith("ended with code 1: the board is held")


def test_a_command_that_cannot_be_made_is_a_failed_start() -> None:
    asked = []

    def refuse() -> list[str]:
        asked.append(None)
        if len(asked) < 3:
            raise TransportError("the node has 0 free u280 boards")
        return [sys.executable, "-c", SERVES]

    with kept(refuse, QUICK) as process:
        until(lambda: process.state.told == "ready")
        assert process.state.restarts == 2
        assert process.state.cause == "the node has 0 free u280 boards"


def test_starts_are_not_one_after_another_without_a_pause() -> None:
    assert [Pauses().after(failures) for failures in (0, 1, 2, 3, 20, 5000)] == [
        0.0, 0.25, 0.5, 1.0, 30.0, 30.0,
    ]  # fmt: skip
    with kept(FAILS, SLOW) as process:
        until(lambda: process.state.cause != "")
        time.sleep(0.3)
        assert process.state.restarts == 0  # and the end does not wait for the pause


def test_a_sound_run_has_no_pause_after_it() -> None:
    sound = Pauses(first=3600.0, most=3600.0, sound=0.0)
    with kept(SERVES, sound) as process:
        until(lambda: process.state.told == "ready")
        first = process.state.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: process.state.restarts == 1 and process.state.told == "ready")


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_process, "STOP_SECONDS", 0.2)
    with kept(DEAF, QUICK) as process:
        until(lambda: process.state.told == "ready")
        pid = process.state.pid
        assert pid is not None
    assert not runs(pid) and "SIGKILL" in process.state.cause


def test_earlier_restarts_count() -> None:
    with kept(SERVES, QUICK, KeptState(restarts=1, cause="lost")) as process:
        until(lambda: process.state.told == "ready")
        assert (process.state.restarts, process.state.cause) == (1, "lost")
