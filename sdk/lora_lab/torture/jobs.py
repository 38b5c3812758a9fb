"""A campaign on several processes: each does every so-manieth run, and results come in order, each
a line of JSON."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any

from lora_host.errors import TransportError
from lora_host.held_folder import HeldFolder, remove_stale
from lora_host.interrupt import ended_as_by_ctrl_c
from lora_lab.torture.campaign import Campaign, Verdict, draw
from lora_lab.torture.faults import EMULATED, Fault, Run
from lora_lab.torture.folders import HELD, write_folders
from lora_lab.torture.host import campaign as host_campaign
from lora_lab.torture.rig import Rig

END_S = 60.0  # of a process that has been told to end


def verdicts(
    seed: int, first: int, count: int, jobs: int = 1, target: str = EMULATED
) -> Generator[Verdict, None, None]:
    """Those of runs `first` to before `first + count`, in order."""
    if jobs == 1:
        with _campaign(target) as campaign:
            for number in range(first, first + count):
                yield campaign.verdict(_drawn(target, seed, number))
        return
    processes = [_start(target, seed, first + job, count - job, jobs) for job in range(jobs)]
    try:
        for number in range(count):
            yield _next(processes[number % jobs])
        for process in processes:  # they remove their folders
            process.wait()
    finally:
        _end(processes)


def replayed(run: Run) -> Verdict:
    """One run, on engines of its own."""
    with _campaign(run.target) as campaign:
        return campaign.verdict(run)


def _drawn(target: str, seed: int, number: int) -> Run:
    return draw(seed, number) if target == EMULATED else host_campaign.draw(target, seed, number)


@contextmanager
def _campaign(target: str) -> Iterator[Campaign | host_campaign.HostCampaign]:
    """On a model in a temporary folder. Folders of killed campaigns go."""
    remove_stale(HELD)
    folder = HeldFolder(HELD)
    try:
        if target != EMULATED:
            yield host_campaign.HostCampaign(target, folder.path)
            return
        rig = Rig(write_folders(folder.path))
        try:
            yield Campaign(rig)
        finally:
            rig.close()
    finally:
        folder.remove()


def _start(target: str, seed: int, first: int, span: int, step: int) -> subprocess.Popen[bytes]:
    words = [str(word) for word in (target, seed, first, span, step)]
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it can deal with it
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "lora_lab.torture.jobs", *words],
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C comes once, from this process
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """As by Ctrl-C: they remove their folders, and end what they have started. A folder of one that
    does not end in time goes after it."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    remove_stale(HELD)


def _next(process: subprocess.Popen[bytes]) -> Verdict:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith(b"\n"):
        raise TransportError(
            f"a process of the campaign has ended with {process.wait()}; its boards are emulated "
            "in it: run with --jobs 1 to see why"
        )
    return verdict_from(json.loads(line))


def verdict_from(values: dict[str, Any]) -> Verdict:
    """What `asdict` made of one."""
    smallest = values["smallest"]
    return Verdict(
        **{
            **values,
            "run": _run(values["run"]),
            "problems": tuple(values["problems"]),
            "smallest": None if smallest is None else _run(smallest),
        }
    )


def _run(values: dict[str, Any]) -> Run:
    faults = (Fault(**{**one, "numbers": tuple(one["numbers"])}) for one in values["faults"])
    return Run(**{**values, "faults": tuple(faults)})


class _CtrlC:
    """Handler of SIGINT. What it interrupts may raise something else in its place: Python 3.11 does
    so while a class is made, a `finally` may."""

    def __init__(self) -> None:
        self.pressed = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt


def _work(ctrl_c: _CtrlC, target: str, seed: int, first: int, span: int, step: int) -> None:
    with _campaign(target) as campaign:
        gc.freeze()  # modules: collecting takes a tenth of a run with them
        for number in range(first, first + span, step):
            verdict = campaign.verdict(_drawn(target, seed, number))
            if ctrl_c.pressed:
                raise KeyboardInterrupt
            print(json.dumps(asdict(verdict)), flush=True)


def _main(target: str, *numbers: str) -> None:
    ctrl_c = _CtrlC()
    try:
        signal.signal(signal.SIGINT, ctrl_c)  # a shell's job may ignore it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with ended_as_by_ctrl_c():
            _work(ctrl_c, target, *map(int, numbers))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
    except Exception:
        if not ctrl_c.pressed:
            raise
        sys.exit(130)


if __name__ == "__main__":
    _main(*sys.argv[1:])
