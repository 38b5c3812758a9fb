"""Under the same times of units the emulator, where the firmware dispatches, and the control's
sequencer issue a real model's list alike: behind each result the same commands start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_sdk.step.runner import KvOp, Row, Runner
from tests.drive import open_runner
from tests.emu.test_generate import pages
from tests.rtl.card_rig import SimulatedCard
from tests.unit.card_core import CONTROL
from tests.variants import variant, write_checkpoint

pytestmark = pytest.mark.rtl

# Microseconds of a command by unit; no two of them end at once in a run.
TIMES = ({abi.UNIT_MPU: 97, abi.UNIT_VFU: 11, abi.UNIT_DMA: 31},
         {abi.UNIT_MPU: 13, abi.UNIT_VFU: 7, abi.UNIT_DMA: 211})  # fmt: skip
TIMEOUTS = {"poll_us": 1}
NO_COMMAND = 0xFFFFFFFF


@dataclass(frozen=True)
class Event:
    """A command begins, or its result is there."""

    index: int
    end: bool


@dataclass(frozen=True)
class Emulated:
    """A step on an emulated board: what began and ended, in order, and the board's memory."""

    events: list[Event]
    plan: Any
    memory: dict[str, bytes]


def emulated(folder: Path, size: int, rows: int, times: dict[int, int]) -> Emulated:
    """Board 0 of `size`."""
    with open_runner(folder, size, trace=True, timeouts=TIMEOUTS) as runner:
        boards = runner.cluster.emulated
        assert boards
        for board in range(size):
            for unit, microseconds in times.items():
                boards.fault(board, abi.FAULT_UNIT_SLOW, unit, microseconds)
        boards.trace(0)
        first = [Row(0, i, 5 + i, i, i - 1, want_argmax=i == rows - 1) for i in range(rows)]
        tables = [KvOp.table(0, tile, page) for tile, page in enumerate(pages())]
        runner.step(first, [KvOp.length(0, 0), *tables])
        marks = [
            (int(record[time]), int(record["index"]), time == "end")
            for record in boards.trace(0)
            for time in ("begin", "end")
        ]
        events = [Event(index, end) for _, index, end in sorted(marks) if index != NO_COMMAND]
        return Emulated(events, runner.plan, memory_of(runner))


def memory_of(runner: Runner) -> dict[str, bytes]:
    """The list and the step's block as they lie in the control bank."""
    control = runner.plan.boards[0].control

    def read(offset: int, size: int) -> bytes:
        return bytes(runner.cluster.read(0, CONTROL, offset, size))

    header = np.frombuffer(read(control.list_offset, 256), abi.dtype("list"))[0]
    step = np.frombuffer(read(control.block_offset, 64), abi.dtype("step"))[0]
    return {
        "list": read(control.list_offset, 256 + 64 * int(header["command_count"])),
        "block": read(control.block_offset, int(step["bytes"])),
    }


def simulated(found: Emulated, seed: int) -> list[Event]:
    """The same list and step on a control whose units end in the emulator's order."""
    card, control = SimulatedCard(seed), found.plan.boards[0].control
    card.set_arenas(found.plan.boards[0].arenas)
    card.write(CONTROL, control.list_offset, found.memory["list"])
    completion, error = card.operate(abi.OP_REGISTER, BLOCK_OFFSET=control.list_offset, LIST_ID=0)
    assert completion["status"] == abi.OK, error
    card.answer_votes(control.votes_offset, found.plan.size)
    card.end_in_order([event.index for event in found.events if event.end])
    card.write(CONTROL, control.block_offset, found.memory["block"])
    completion, error = card.operate(abi.OP_STEP, BLOCK_OFFSET=control.block_offset, LIST_ID=0)
    assert completion["status"] == abi.OK, error
    events = [Event(index, end) for index, end in card.events()]
    card.close()
    return events


def issued(events: list[Event]) -> list[tuple[int, frozenset[int]]]:
    """Each result, with the commands that started since the one before it."""
    found, started = [], set[int]()
    for event in events:
        if event.end:
            found.append((event.index, frozenset(started)))
            started = set()
        else:
            started.add(event.index)
    assert not started  # each has ended
    return found


def side_by_side(events: list[Event]) -> int:
    """Commands that start while another one runs."""
    running, count = 0, 0
    for event in events:
        count += not event.end and running > 0
        running += -1 if event.end else 1
    return count


@pytest.mark.parametrize(
    ("size", "rows", "times"),
    [
        (2, 20, TIMES[0]),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in ((1, 20, TIMES[0]), (2, 1, TIMES[1]))
        ),
    ],
)
def test_issue_sequence(tmp_path: Path, size: int, rows: int, times: dict[int, int]) -> None:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path / "model")
    found = emulated(folder, size, rows, times)
    assert len(found.events) > 80 and side_by_side(found.events) >= 2
    assert issued(simulated(found, rows)) == issued(found.events)
