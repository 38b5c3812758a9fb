"""A campaign on several processes: each does every so-manieth run, and results come in order."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lora_host.errors import TransportError
from lora_sdk.torture.campaign import Campaign, Verdict, draw
from lora_sdk.torture.faults import Run
from lora_sdk.torture.folders import write_folders
from lora_sdk.torture.rig import Rig


def verdicts(seed: int, first: int, count: int, jobs: int = 1) -> Iterator[Verdict]:
    """Those of runs `first` to before `first + count`, in order."""
    if jobs == 1:
        with tempfile.TemporaryDirectory(prefix="lora-torture-") as folder:
            rig = Rig(write_folders(Path(folder)))
            try:
                campaign = Campaign(rig)
                for number in range(first, first + count):
                    yield campaign.verdict(draw(seed, number))
            finally:
                rig.close()
        return
    processes = [_start(seed, first + job, count - job, jobs) for job in range(jobs)]
    try:
        for number in range(count):
            yield _next(processes[number % jobs])
        for process in processes:  # they remove their folders
            process.wait()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def replayed(run: Run) -> Verdict:
    """One run, on engines of its own."""
    with tempfile.TemporaryDirectory(prefix="lora-torture-") as folder:
        rig = Rig(write_folders(Path(folder)))
        try:
            return Campaign(rig).verdict(run)
        finally:
            rig.close()


def _start(seed: int, first: int, span: int, step: int) -> subprocess.Popen[bytes]:
    words = [str(word) for word in (seed, first, span, step)]
    return subprocess.Popen(
        [sys.executable, "-m", "lora_sdk.torture.jobs", *words], stdout=subprocess.PIPE
    )


def _next(process: subprocess.Popen[bytes]) -> Verdict:
    assert process.stdout is not None
    try:
        found = pickle.load(process.stdout)  # of this program's own process
    except (EOFError, pickle.UnpicklingError):
        raise TransportError(
            f"a process of the campaign has ended with {process.wait()}; its boards are emulated "
            "in it: run with --jobs 1 to see why"
        ) from None
    assert isinstance(found, Verdict)
    return found


def _work(seed: int, first: int, span: int, step: int) -> None:
    with tempfile.TemporaryDirectory(prefix="lora-torture-") as folder:
        rig = Rig(write_folders(Path(folder)))
        campaign = Campaign(rig)
        for number in range(first, first + span, step):
            pickle.dump(campaign.verdict(draw(seed, number)), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        _work(*map(int, sys.argv[1:]))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
