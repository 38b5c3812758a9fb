"""Runs that end badly: hangs and their reset, failures that other boards only echo, cancelled
calls, Ctrl-C. The boards' lists are real ones; the steps are small."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.errors import CommandError, HangError, LinkError, TransportError
from lora_sdk.step.runner import KvOp, Row, Runner
from tests.drive import open_runner
from tests.processes import environment
from tests.transports import HASTY, Transport
from tests.variants import variant, write_checkpoint

FIRST_PAGE = abi.MAX_SCRATCH // abi.TILE_POSITIONS
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("ends") / "model")


@pytest.fixture
def runner(folder: Path, transport: Transport) -> Iterator[Runner]:
    with open_runner(folder, 4, transport=transport) as opened:
        yield opened


@pytest.fixture
def hasty(folder: Path, transport: Transport) -> Iterator[Runner]:
    """Boards whose hangs are told soon, where waiting takes real time."""
    soon = HASTY if transport.timeouts else None
    with open_runner(folder, 4, transport=transport, timeouts=soon) as opened:
        yield opened


Plant = Callable[..., None]


@pytest.fixture
def fault(transport: Transport) -> Plant:
    """Plants a fault on a board of a runner."""

    def plant(runner: Runner, board: int, kind: int, *more: int) -> None:
        transport.fault(runner.cluster, board, kind, *more)

    return plant


def step(runner: Runner) -> bytes:
    """One row on sequence 0, always from the start: the same bytes each time."""
    ops = [KvOp.length(0, 0), KvOp.table(0, 0, FIRST_PAGE)]
    result = runner.step([Row(0, 0, 17, 5, want_logits=True)], ops)
    assert result.logits is not None
    return result.logits.tobytes()


@pytest.mark.light(kind=("FAULT_DONE_LOST",))
@pytest.mark.parametrize("kind", ["FAULT_FIRMWARE_DEAD", "FAULT_DONE_LOST"])
def test_a_hang_stays_with_one_report_until_reset(hasty: Runner, fault: Plant, kind: str) -> None:
    runner, cluster = hasty, hasty.cluster
    fault(runner, 2, getattr(abi, kind))
    with pytest.raises(HangError, match=r"board 2 .* hangs") as first:
        step(runner)
    assert "board 2" in first.value.report and "in flight" in first.value.report
    fault(runner, 2, abi.FAULT_NONE)
    with pytest.raises(HangError) as second:
        step(runner)
    assert str(second.value) == str(first.value) and second.value.report == first.value.report
    with pytest.raises(HangError):
        cluster.checksum(0, 32, 0, 64)
    cluster.reset()
    for board in range(cluster.size):
        assert cluster.checksum(board, 32, 0, 64) is not None
    cluster.links_up(cluster.cables)


def test_after_a_failed_step_the_same_step_gives_the_same_bytes(
    runner: Runner, fault: Plant
) -> None:
    want = step(runner)
    before = runner.cluster.stats()
    fault(runner, 1, abi.FAULT_UNIT_STUCK, abi.UNIT_MPU)
    with pytest.raises(HangError, match=r"board 1 .*MPU") as caught:
        step(runner)
    assert caught.value.failure is not None
    assert caught.value.failure.status == "LORA_ERR_WATCHDOG"
    assert caught.value.failure.unit == abi.UNIT_MPU and caught.value.failure.index is not None
    fault(runner, 1, abi.FAULT_NONE)
    assert step(runner) == want
    after = runner.cluster.stats()
    assert after.step == before.step + 1 and after.epoch > before.epoch
    assert after.steps == before.steps + 1 and after.redone_steps == 0


@pytest.mark.light(transport=("emu",))
def test_the_board_that_failed_is_named_not_those_that_echo_it(runner: Runner) -> None:
    """Board 3 alone finds its list changed; the others wait for its frames."""
    step(runner)
    control = runner.plan.boards[3].control
    offset = control.list_offset + abi.dtype("list").itemsize + 5 * 64 + 40
    kept = runner.cluster.read(3, 32, offset, 4)
    runner.cluster.write(3, 32, offset, bytes(byte ^ 0xFF for byte in kept))
    with pytest.raises(CommandError, match=r"board 3 .*seal") as caught:
        step(runner)
    assert caught.value.failure is not None
    assert caught.value.failure.status == "LORA_ERR_CRC"
    runner.cluster.write(3, 32, offset, kept)
    step(runner)


@pytest.mark.light(transport=("emu",))
def test_a_lost_completion_record_is_told_from_success(runner: Runner, fault: Plant) -> None:
    want = step(runner)
    fault(runner, 3, abi.FAULT_COMPLETION_LOST)
    with pytest.raises(TransportError, match=r"board 3 .* completion record") as caught:
        step(runner)
    assert caught.value.failure is not None
    assert caught.value.failure.status == "LORA_ERR_COMPLETION"
    fault(runner, 3, abi.FAULT_NONE)
    assert step(runner) == want


@pytest.mark.light(transport=("emu",))
def test_an_earlier_runs_record_does_not_pass_for_a_lost_one(runner: Runner, fault: Plant) -> None:
    runner.cluster.checksum(3, 32, 0, 64)
    fault(runner, 3, abi.FAULT_COMPLETION_LOST)
    with pytest.raises(TransportError, match=r"board 3 .* completion record"):
        runner.cluster.checksum(3, 32, 0, 64)


def test_a_damaged_frame_costs_one_redo_and_two_are_an_error(runner: Runner, fault: Plant) -> None:
    want = step(runner)
    fault(runner, 0, abi.FAULT_LINK_FLIP, 1, 0, 1)
    assert step(runner) == want
    assert runner.cluster.stats().redone_steps == 1
    fault(runner, 0, abi.FAULT_LINK_FLIP, 1, 0, 1 << 30)
    with pytest.raises(LinkError, match="CRC") as caught:
        step(runner)
    fields = caught.value.failure
    assert fields is not None
    assert {(fields.board, fields.port), (fields.peer_board, fields.peer_port)} == {(0, 1), (1, 0)}
    fault(runner, 0, abi.FAULT_NONE)
    assert step(runner) == want


@pytest.mark.light(transport=("emu",))
def test_an_unknown_list_and_a_wrong_block_are_refused(runner: Runner) -> None:
    step(runner)
    block = bytearray(64)
    offset = runner.plan.boards[0].control.block_offset
    with pytest.raises(Exception, match="header of 0 and block of 0 named"):
        runner.cluster.step(block, offset)
    block[0:12] = b"".join(n.to_bytes(4, "little") for n in (64, abi.ABI_NUMBER, 64))
    block[12] = 1
    with pytest.raises(CommandError, match="list is not registered"):
        runner.cluster.step(block, offset)
    with pytest.raises(Exception, match="are the firmware's"):
        runner.cluster.step(block, 0)
    step(runner)


@pytest.mark.light(transport=("emu",))
def test_closing_from_another_thread_ends_a_running_loop(runner: Runner) -> None:
    cluster, raised = runner.cluster, []
    offset = runner.plan.boards[0].control.block_offset
    step(runner)
    runner.step([], [KvOp.length(0, 0)])
    started = threading.Event()

    def hear(_token: int) -> None:
        started.set()
        time.sleep(0.02)

    def run() -> None:
        try:
            cluster.greedy(0, 0, 17, (6, 7, 8), 32, offset, on_token=hear)
        except TransportError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    cluster.close()
    thread.join(10)
    assert [error.failure and error.failure.status for error in raised] == ["LORA_ERR_CANCELLED"]


CTRL_C = """
    import sys, time
    from pathlib import Path
    from lora_host.errors import LoraError
    from lora_sdk.step.runner import KvOp, Row
    from tests.drive import open_runner

    with open_runner(Path(sys.argv[1]), 2, kernels=sys.argv[2]) as runner:
        ops = [KvOp.length(0, 0), KvOp.table(0, 0, 4)]
        print("ready", flush=True)
        try:
            while True:
                runner.step([Row(0, 0, 17, 5, want_logits=True)], ops)
        except KeyboardInterrupt:
            kept = runner.step([Row(0, 0, 17, 5, want_logits=True)], ops)
            print("interrupted", kept.rows, flush=True)
            raise
"""


@pytest.mark.parametrize("kernels", ["native", "numpy"])
def test_ctrl_c_ends_a_step_cleanly_and_boards_still_work(folder: Path, kernels: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CTRL_C), str(folder), kernels],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(0.3)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.monotonic() - sent < 15
    assert output.startswith("interrupted") and process.returncode == -signal.SIGINT
    assert "From cffi callback" not in errors and errors.rstrip().endswith("KeyboardInterrupt")
