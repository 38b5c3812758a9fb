"""The joined control: the control program hands a step to the sequencer, which runs its list."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from lora_host import abi
from lora_lab.timing.control import Cost
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.plan.placement import make_plan
from lora_sdk.step.step import Row, build_block
from tests.rtl.card_rig import HANGS, SimulatedCard
from tests.unit.card_core import CONTROL
from tests.unit.plan_rig import GPT2, board, overlay
from tests.unit.test_timing_control import DURATIONS, Rig

pytestmark = pytest.mark.rtl

READ_CYCLES = 31  # 122.2 ns at 250 MHz
RECORDS = ("code", "index", "opcode", "unit", "found", "expected", "counter", "port", "step", "row")
NONE = 0xFFFFFFFF


class RigCard(SimulatedCard):
    """What Rig asks of a card that counts cycles."""

    def begin(self) -> None:
        pass

    def command_cost(self) -> Cost:
        return Cost(0, 0, 0)


def small(boards: int, seed: int) -> Rig:
    """A registered list of a small model."""
    plan = make_plan(GPT2, overlay(), board(), boards)
    return Rig(plan, lower(GPT2, plan, 0), RigCard(seed))


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """On `param` boards; memory takes and answers as it happens."""
    made = small(request.param, 7)
    yield made
    made.card.close()


def failed_step(rig: Rig) -> dict[str, int]:
    """The error record of the next step, which fails."""
    with pytest.raises(AssertionError):
        rig.step(1)
    memory = bytes(rig.card.banks[CONTROL][:0x1000])
    record = np.frombuffer(memory, abi.dtype("error_record"), 1, abi.ERROR_OFFSET)[0]
    return {name: int(record[name]) for name in RECORDS}


def redo(rig: Rig, epoch: int) -> None:
    """The failed step is done again under a higher epoch."""
    place = rig.plan.boards[0].control.block_offset
    header = np.frombuffer(rig.card.banks[CONTROL], abi.dtype("step"), 1, place)
    header["epoch"] = epoch
    completion, error = rig.card.operate(
        abi.OP_STEP, BLOCK_OFFSET=place, LIST_ID=0, STEP=rig.number, EPOCH=epoch
    )
    assert completion["status"] == abi.OK, error


@pytest.mark.parametrize("rig", [1, 2], indirect=True)
def test_a_unit_that_fails_is_named_and_the_step_is_done_again(rig: Rig) -> None:
    rig.step(1)
    started = list(rig.card.started)
    assert rig.card.measured().commands == len(started)  # none by a mailbox
    rig.card.ends = {20: abi.ERR_UNIT}
    unit, command = started[20]
    found = failed_step(rig)
    index = int(rig.card.registers[abi.REG_LAST_INDEX // 4 + unit])
    assert found["code"] == abi.ERR_UNIT
    assert (found["unit"], found["opcode"], found["index"]) == (unit, command[0], index)
    assert (found["found"], found["expected"]) == (abi.UNIT_FAILED, abi.UNIT_DONE)
    assert (found["counter"], found["port"], found["row"]) == (NONE, NONE, NONE)
    assert found["step"] == rig.number
    assert rig.card.registers[abi.REG_UNIT_STATE // 4 + unit] == abi.UNIT_FAILED
    assert rig.card.registers[abi.REG_LAST_STEP // 4] == rig.number - 1
    rig.card.ends = {}
    redo(rig, 1)
    assert len(rig.card.started) == len(started)
    assert rig.card.registers[abi.REG_LAST_STEP // 4] == rig.number


@pytest.mark.parametrize("rig", [1], indirect=True)
def test_a_list_that_was_overwritten_does_not_run(rig: Rig) -> None:
    rig.step(1)
    all_of_it = len(rig.card.started)
    place = rig.plan.boards[0].control.list_offset + abi.dtype("list").itemsize
    damaged = place + 20 * 64 + 30  # in the second chunk of 16 commands
    rig.card.banks[CONTROL][damaged] ^= 4
    found = failed_step(rig)
    assert (found["code"], found["index"]) == (abi.ERR_CRC, 16)
    assert found["found"] != found["expected"]
    assert (found["unit"], found["opcode"]) == (NONE, NONE)
    assert len(rig.card.started) <= 16
    rig.card.banks[CONTROL][damaged] ^= 4
    redo(rig, 1)
    assert len(rig.card.started) == all_of_it


@pytest.mark.parametrize("rig", [1], indirect=True)
def test_a_unit_that_hangs_is_named_at_three_quarters_of_the_time(rig: Rig) -> None:
    rig.step(1)
    rig.card.registers[abi.REG_WATCHDOG_MS // 4] = 1
    rig.card.ends = {5: HANGS}
    unit, command = rig.card.started[5]
    found = failed_step(rig)
    assert (found["code"], found["unit"], found["opcode"]) == (abi.ERR_WATCHDOG, unit, command[0])
    taken = rig.card.measured()
    assert taken.commands == 6
    memory = bytes(rig.card.banks[CONTROL][:0x1000])
    record = np.frombuffer(memory, abi.dtype("completion"), 1, abi.COMPLETION_OFFSET)[0]
    assert 150_000 < record["cycles"] < 160_000  # of the 200,000 of a millisecond
    rig.card.ends = {}
    redo(rig, 1)


@pytest.mark.parametrize(
    "seed", [3, 4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 25))]
)
def test_it_begins_again_in_the_middle_of_a_step(seed: int) -> None:
    """What the sequencer has asked of memory is taken; units are stopped; the next list runs."""
    rig = small(1, seed)
    card = rig.card
    rig.step(1)
    chance = random.Random(seed)
    for _ in range(3):
        card.registers[abi.REG_AP_CTRL // 4] = abi.AP_START  # the same step again: refused or not
        header = np.frombuffer(
            card.banks[CONTROL], abi.dtype("step"), 1, rig.plan.boards[0].control.block_offset
        )
        header["step"] += 1
        card.take_time(dict.fromkeys(DURATIONS, chance.randrange(1, 300)), READ_CYCLES)
        card.restart(chance.randrange(3_000, 12_000))
        again = Rig(rig.plan, lower(GPT2, rig.plan, 0), card)
        again.step(1)
        rig = again
    card.close()


def test_a_step_of_64_rows_and_512_operations() -> None:
    """What docs/sequencer.md reports; the checks do not depend on the number of commands."""
    rig = small(1, 0)
    card, plan = rig.card, rig.plan
    rig.step(1)
    card.take_time({}, READ_CYCLES)
    tiles = plan.context // abi.TILE_POSITIONS
    ops = [KvOp.table(1, i % tiles, plan.page_count - 1 - i % tiles) for i in range(511)]
    ops.append(KvOp.length(1, 0))
    rows = [
        Row(1, i, 7, 64 + i, parent=63 + i if i else -1, want_argmax=i == 63) for i in range(64)
    ]
    block = build_block(rows, ops, [], 0, plan.config.embed_dim)
    np.frombuffer(block, abi.dtype("step"), 1)["step"] = 2
    place = plan.boards[0].control.block_offset
    card.write(CONTROL, place, bytes(block))
    completion, error = card.operate(abi.OP_STEP, BLOCK_OFFSET=place, LIST_ID=0, STEP=2, EPOCH=0)
    assert completion["status"] == abi.OK, error
    found = card.measured()
    assert found.commands == 47
    assert 200_000 < found.before < 400_000
    card.close()
