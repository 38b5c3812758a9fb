"""Faults are reported as what they are: a flipped bit on a link or in placed weights, a stuck unit,
a lost completion, a silent cable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.errors import CommandError, HangError, LinkError, TransportError
from lora_sdk.step.runner import Runner
from tests.drive import Driver, open_runner
from tests.transports import HASTY, Transport
from tests.variants import variant, write_checkpoint

TOKENS = [5, 17, 99, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("faults") / "model")


@pytest.fixture
def runner(folder: Path, transport: Transport) -> Iterator[Runner]:
    with open_runner(folder, 4, transport=transport) as opened:
        yield opened


Plant = Callable[..., None]


@pytest.fixture
def fault(transport: Transport, runner: Runner) -> Plant:
    """Plants a fault on a board of the runner."""
    return partial(transport.fault, runner.cluster)


def test_one_flipped_bit_on_a_link_is_found_and_the_step_redone(
    runner: Runner, fault: Plant
) -> None:
    want = Driver(runner).feed(0, TOKENS, (4,)).tobytes()
    redone = runner.cluster.stats().redone_steps
    fault(2, abi.FAULT_LINK_FLIP, 1, 5, 1)
    assert Driver(runner).feed(1, TOKENS, (4,)).tobytes() == want
    assert runner.cluster.stats().redone_steps == redone + 1


def test_a_link_that_keeps_flipping_bits_is_a_link_error(runner: Runner, fault: Plant) -> None:
    fault(2, abi.FAULT_LINK_FLIP, 1, 0, 1_000_000)
    with pytest.raises(LinkError, match=r"board 3.*board 2.*CRC"):
        Driver(runner).feed(0, TOKENS, (4,))
    fault(2, abi.FAULT_NONE)
    assert Driver(runner).feed(1, TOKENS, (4,)).shape[0] == 4


def test_a_flipped_bit_in_placed_weights_is_found_by_the_checksum(runner: Runner) -> None:
    runner.check_weights()
    plan = runner.plan.boards[3]
    bank, offset = plan.matrices["layer.1.o"].address(0)
    offset += 130
    (byte,) = runner.cluster.read(plan.board, bank, offset, 1)
    runner.cluster.write(plan.board, bank, offset, bytes([byte ^ 4]))
    with pytest.raises(TransportError, match=r"board 3.*HBM\[\d+\]"):
        runner.check_weights()


def test_a_stuck_unit_is_named_by_the_watchdog(runner: Runner, fault: Plant) -> None:
    fault(1, abi.FAULT_UNIT_STUCK, abi.UNIT_VFU)
    with pytest.raises((CommandError, HangError), match=r"board 1.*(VFU|vector)"):
        Driver(runner).feed(0, TOKENS, (4,))
    fault(1, abi.FAULT_NONE)
    assert Driver(runner).feed(1, TOKENS, (4,)).shape[0] == 4


@pytest.mark.light(transport=("emu",))
def test_a_lost_completion_record_is_no_success(runner: Runner, fault: Plant) -> None:
    fault(0, abi.FAULT_COMPLETION_LOST)
    with pytest.raises(TransportError, match=r"board 0.*completion"):
        Driver(runner).feed(0, TOKENS, (4,))


@pytest.mark.light(kind=("FAULT_DONE_LOST",))
@pytest.mark.parametrize("kind", ["FAULT_DONE_LOST", "FAULT_FIRMWARE_DEAD"])
def test_a_board_that_never_answers_is_a_hang_with_a_report(
    folder: Path, transport: Transport, kind: str
) -> None:
    hasty = HASTY if transport.timeouts else None
    with open_runner(folder, 4, transport=transport, timeouts=hasty) as runner:
        transport.fault(runner.cluster, 2, getattr(abi, kind))
        began = time.monotonic()
        with pytest.raises(HangError, match="board 2"):
            Driver(runner).feed(0, TOKENS, (4,))
        assert time.monotonic() - began < 30
        report = runner.cluster.report()
    assert "board 2" in report and "MPU" in report and "0x" in report


def test_links_with_silent_errors_fail_the_payload_check(transport: Transport) -> None:
    with transport.open(4) as cluster:
        transport.fault(cluster, 1, abi.FAULT_LINK_GARBLE, 1)
        with pytest.raises(LinkError, match=r"board 1.*board 2"):
            cluster.links_up(cluster.cables)


def test_a_board_whose_registers_read_as_ones_has_left_the_bus(folder: Path) -> None:
    with open_runner(folder, 2) as runner:
        assert runner.cluster.emulated is not None
        runner.cluster.emulated.fault(1, abi.FAULT_REGISTERS_ONES)
        with pytest.raises(TransportError, match=r"board 1 .*the card has left the bus"):
            runner.cluster.reset()
