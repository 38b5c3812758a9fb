"""Host, device process and wrapper killed in any moment: one line, exit code 1, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lora_lab.torture.host.campaign import draw
from tests.processes import environment
from tests.xrt_rig import PREAMBLE

pytestmark = pytest.mark.xrt

OPEN = PREAMBLE + "cluster = opened('xrt:0')\nprint('open', flush=True)\n"
WAIT = OPEN + "sys.stdin.read()\ncluster.close()\n"
WORK = (
    PREAMBLE
    + """
from lora_sdk.cli.outcome import fail
try:
    with opened("xrt:0") as cluster:
        cluster.reserve(0, 32, 1 << 16)
        print("working", file=sys.stderr, flush=True)
        while True:
            cluster.checksum(0, 32, 8192, 4096)
except LoraError as error:
    sys.exit(fail("host", error, 1))
"""
)
KEEPS = WORK.replace('fail("host", error, 1)', "3")  # an exit code of its own
CLUSTER = b"lora_host.device_process.cluster_process\0"
DELAYS = (0.0, 0.1, 0.3, 0.6)
SECONDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """TMPDIR of the wrapper: a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-") as short:
        yield Path(short)


def wrapped(folder: Path, *command: str) -> subprocess.Popen[str]:
    """`command` behind the wrapper."""
    wrapper = [sys.executable, "-m", "lora_host.xrt_environment", "--boards", "1", "--"]
    return subprocess.Popen(
        [*wrapper, *command],
        env={**environment(), "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def of_folder(folder: Path, part: bytes) -> list[int]:
    """Processes with TMPDIR `folder` whose command line has `part`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if part in words and b"TMPDIR=" + str(folder).encode() + b"\0" in variables:
            found.append(int(path.name))
    return found


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


def nothing_left(folder: Path) -> bool:
    return not list(folder.glob("lora-xrt-*")) and not of_folder(folder, b"lora_host")


def one_line(process: subprocess.Popen[str]) -> str:
    """The wrapper's last line; exit code 1, and no traceback before it."""
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and "Traceback" not in error, error
    return error.splitlines()[-1]


@pytest.mark.parametrize("delay", DELAYS)
def test_the_host_is_killed(folder: Path, delay: float) -> None:
    process = wrapped(folder, sys.executable, "-c", WAIT)
    wait_for(lambda: of_folder(folder, b"device_process"))
    time.sleep(delay)
    (host,) = set(of_folder(folder, b"cluster = opened")) - {process.pid}
    os.kill(host, signal.SIGKILL)
    assert one_line(process).endswith("ended by SIGKILL")
    wait_for(lambda: nothing_left(folder))


@pytest.mark.parametrize("delay", DELAYS)
def test_the_device_process_is_killed(folder: Path, delay: float) -> None:
    process = wrapped(folder, sys.executable, "-c", WORK)
    wait_for(lambda: of_folder(folder, b"lora_host.device_process\0"))
    time.sleep(delay)
    while process.poll() is None:  # XRT starts another at each load
        for device in of_folder(folder, b"lora_host.device_process\0"):
            with suppress(ProcessLookupError):
                os.kill(device, signal.SIGKILL)
        time.sleep(0.02)
    line = one_line(process)
    assert (
        "a board's device process has died" in line
        or "the card has left the bus" in line
        or "the runtime has not returned from 'load'" in line  # XRT allocates in a signal handler
    )
    wait_for(lambda: nothing_left(folder))


@pytest.mark.parametrize("killed", [False, True])
def test_the_host_ends_after_its_device_process(folder: Path, killed: bool) -> None:
    """XRT sends its host SIGTERM if a device process dies while a board opens. The line gives that
    reason, and only if a device process has died."""
    process = wrapped(folder, sys.executable, "-c", WAIT)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    if killed:
        (device,) = of_folder(folder, b"lora_host.device_process\0")
        os.kill(device, signal.SIGKILL)
    (host,) = set(of_folder(folder, b"cluster = opened")) - {process.pid}
    os.kill(host, signal.SIGTERM)
    line = one_line(process)
    assert ("ended by SIGTERM" in line) and ("a board's device process has died" in line) == killed
    wait_for(lambda: nothing_left(folder))


def test_a_host_that_lives_on_keeps_its_exit_code(folder: Path) -> None:
    process = wrapped(folder, sys.executable, "-c", KEEPS)
    assert process.stderr is not None and process.stderr.readline() == "working\n"
    (device,) = of_folder(folder, b"lora_host.device_process\0")
    os.kill(device, signal.SIGKILL)
    _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 3
    assert error.endswith("ended with exit code 3; a board's device process has died\n")
    wait_for(lambda: nothing_left(folder))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_the_cluster_process_ends_or_stops(folder: Path, sent: signal.Signals) -> None:
    """The runtime waits for ever then, in whatever call it is. The host has its error after the
    call's limit, closes its board and ends."""
    process = wrapped(folder, sys.executable, "-c", WORK)
    assert process.stderr is not None and process.stderr.readline() == "working\n"
    (cluster,) = of_folder(folder, CLUSTER)
    began = time.monotonic()
    os.kill(cluster, sent)
    process.wait(30)
    print(f"ends after {time.monotonic() - began:.1f} s")
    if sent == signal.SIGSTOP:  # it holds the other end of stderr
        os.kill(cluster, signal.SIGKILL)
    line = one_line(process)
    assert "the runtime has not returned from" in line or "the card has left the bus" in line
    wait_for(lambda: nothing_left(folder))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_ctrl_c_while_the_runtime_is_dead(folder: Path, sent: signal.Signals) -> None:
    """It counts once the call's limit has passed; the board is closed and nothing stays."""
    process = wrapped(folder, sys.executable, "-c", WORK)
    assert process.stderr is not None and process.stderr.readline() == "working\n"
    (cluster,) = of_folder(folder, CLUSTER)
    os.kill(cluster, sent)
    for host in of_folder(folder, b"working"):  # and the wrapper, as a terminal does
        os.kill(host, signal.SIGINT)
    process.wait(SECONDS)
    if sent == signal.SIGSTOP:  # it holds the other end of stderr
        os.kill(cluster, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    wait_for(lambda: nothing_left(folder))


def test_the_wrapper_is_killed(folder: Path) -> None:
    """The host goes on; with its end the folder goes too."""
    process = wrapped(folder, sys.executable, "-c", WAIT)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "open\n"
    process.kill()
    process.wait()
    time.sleep(0.3)
    assert list(folder.glob("lora-xrt-*")) and of_folder(folder, b"device_process")
    process.stdin.close()
    wait_for(lambda: nothing_left(folder))


def test_signals_and_commands_that_are_not_there(folder: Path) -> None:
    stopped = wrapped(
        folder, sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"
    )
    assert stopped.stdout is not None and stopped.stdout.readline() == "up\n"
    stopped.terminate()
    assert "ended by SIGTERM" in one_line(stopped)
    assert "no-such-command: cannot be started" in one_line(wrapped(folder, "no-such-command"))
    assert nothing_left(folder)


CAMPAIGN = (sys.executable, "-c", "from lora_sdk.cli.main import main; main()", "lab", "torture")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_campaign_that_is_ended_leaves_no_stopped_process(
    folder: Path, number: signal.Signals
) -> None:
    stops = (n for n in range(999) if draw("xrt", 0, n).faults[0].kind == "device process stopped")
    run = next(stops)
    words = ("--target", "xrt", "--runs", "1", "--from", str(run))
    with subprocess.Popen(
        [*CAMPAIGN, *words], env={**environment(), "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as campaign:  # fmt: skip
        wait_for(lambda: "T" in states(folder))
        campaign.send_signal(number)
        _, said = campaign.communicate(timeout=SECONDS)
    assert campaign.returncode == 130 and "interrupted after 0 of 1 runs" in said, said
    wait_for(lambda: not states(folder))
    assert not list(folder.iterdir())


def test_a_campaign_says_how_its_runs_end(folder: Path) -> None:
    """Seed 91 once ended in a traceback."""
    words = ("--target", "xrt", "--runs", "1", "--seed", "91")
    done = subprocess.run(
        [*CAMPAIGN, *words], env={**environment(), "TMPDIR": str(folder)}, capture_output=True,
        text=True, timeout=10 * SECONDS,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "1 run in" in done.stdout + done.stderr and "0 failed" in done.stdout + done.stderr


def states(folder: Path) -> list[str]:
    """Of the processes of this TMPDIR."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "stat").read_text().rpartition(")")[2].split()[0])
    return found
