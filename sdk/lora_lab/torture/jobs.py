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
    """As by Ctrl-C: they remove their folders, and end what they have started."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


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


def _work(target: str, seed: int, first: int, span: int, step: int) -> None:
    with _campaign(target) as campaign:
        gc.freeze()  # modules: collecting takes a tenth of a run with them
        for number in range(first, first + span, step):
            verdict = campaign.verdict(_drawn(target, seed, number))
            print(json.dumps(asdict(verdict)), flush=True)


if __name__ == "__main__":
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job may ignore it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with ended_as_by_ctrl_c():
            _work(sys.argv[1], *map(int, sys.argv[2:]))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
