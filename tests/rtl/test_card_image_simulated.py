"""The overlay's firmware image on the control's hardware: what tests/unit/test_card_image.py asks
of it, with the reference beside the core."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host import abi
from lora_lab.timing.control import Cost
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.plan.placement import make_plan
from lora_sdk.step.step import Row
from tests.rtl.card_rig import SimulatedCard, load
from tests.rtl.core_rig import build
from tests.rtl_rig import first_then_long, mistaken
from tests.unit import test_card_image as cases
from tests.unit.card_core import CONTROL
from tests.unit.plan_rig import GPT2, board, overlay
from tests.unit.test_timing_control import Rig

pytestmark = pytest.mark.rtl


@pytest.fixture
def card() -> Iterator[SimulatedCard]:
    """Registers begin with random bits; memory takes and answers as it happens."""
    made = SimulatedCard(1)
    yield made
    made.close()


test_it_says_who_it_is = cases.test_it_says_who_it_is
test_it_runs_a_models_steps = cases.test_it_runs_a_models_steps
test_a_digest_of_another_board_fails_the_step = cases.test_a_digest_of_another_board_fails_the_step
test_it_refuses_an_address_beyond_its_arena = cases.test_it_refuses_an_address_beyond_its_arena


@pytest.mark.slow
def test_it_registers_a_model_of_the_papers_size(card: SimulatedCard) -> None:
    cases.test_it_registers_a_model_of_the_papers_size(card)
    instructions, cycles = card.counts()
    assert instructions > 10_000_000  # all of them compared with the reference
    assert cycles < 3 * instructions


IDENTITY = (abi.REG_IDENTITY_BOARD, abi.REG_IDENTITY_SERIAL, abi.REG_FIRMWARE_CRC)
STOP = (abi.REG_FIRMWARE_STATE, abi.REG_STOP_CAUSE, abi.REG_STOP_PC)


def seen(card: SimulatedCard, registers: tuple[int, ...]) -> list[int]:
    return [card.registers[place // 4] for place in registers]


def tells_its_identity(card: SimulatedCard) -> None:
    """As the board gives it, whatever the host writes there, behind a restart too."""
    said = card.identity()
    assert len(set(said)) == 3 and 0 not in said
    assert seen(card, IDENTITY) == said
    for place in IDENTITY:
        card.registers[place // 4] = 0x5A5A5A5A
    assert seen(card, IDENTITY) == said
    card.restart(100)
    assert seen(card, IDENTITY) == said


def tells_where_its_core_stands(card: SimulatedCard) -> None:
    """A record that did not reach memory has no done bit behind it, but the host sees why."""
    card.set_arenas({CONTROL: 1 << 20})
    card.operate(abi.OP_IDENTIFY)
    assert seen(card, STOP) == [abi.FW_DONE, 0, 0]
    card.fail_line(CONTROL, abi.COMPLETION_OFFSET)
    with pytest.raises(pytest.fail.Exception, match=r"the core stands .* cause 5"):
        card.operate(abi.OP_IDENTIFY)
    cause, place = card.stop()
    assert cause == 5 and 0 < place < len(card.code)
    assert seen(card, IDENTITY) == card.identity()  # meanwhile the stop is written, in three cycles
    assert seen(card, STOP) == [abi.FW_STOPPED, cause, place]
    assert not card.registers[abi.REG_AP_CTRL // 4] & abi.AP_DONE
    card.fail_line(0, 0)
    card.restart()
    card.set_arenas({CONTROL: 1 << 20})
    card.operate(abi.OP_IDENTIFY)
    assert seen(card, STOP) == [abi.FW_DONE, 0, 0]


def test_it_tells_its_identity(card: SimulatedCard) -> None:
    tells_its_identity(card)


def test_it_tells_where_its_core_stands(card: SimulatedCard) -> None:
    tells_where_its_core_stands(card)


class Untimed(SimulatedCard):
    """What Rig asks of a card that counts cycles."""

    def begin(self) -> None:
        pass

    def command_cost(self) -> Cost:
        return Cost(0, 0, 0)


def generate_tokens(card: Untimed) -> None:
    """GENERATE: steps that the control program makes itself, each with all of the list."""
    plan = make_plan(GPT2, overlay(), board(), 1)
    rig = Rig(plan, lower(GPT2, plan, 0), card)
    rig.step(1)
    each = len(card.started)
    rig.generate(5)  # asserts status and number of tokens
    assert rig.number == 6
    assert len(card.started) >= 5 * each
    assert card.registers[abi.REG_LAST_STEP // 4] == 6
    assert card.registers[abi.REG_TOKEN // 4] & abi.TOKEN_OVER
    card.close()


def test_it_generates_tokens() -> None:
    generate_tokens(Untimed(4))


@pytest.mark.parametrize("seed", range(2, 4))
def test_it_begins_again_at_any_cycle(seed: int) -> None:
    """In the middle of a registration: registers are cleared, the operation is gone."""
    card = SimulatedCard(seed)
    plan, *_ = cases.register(card, "llama", 2)
    _, cycles = card.counts()
    chance = random.Random(seed)
    for _ in range(3):
        card.set_arenas(plan.boards[0].arenas)
        card.registers[abi.REG_CONTROL_BANK // 4] = CONTROL
        card.registers[abi.REG_BLOCK_OFFSET // 4] = plan.boards[0].control.list_offset
        card.registers[abi.REG_CANCEL // 4] = 1
        card.registers[abi.REG_OPERATION // 4] = abi.OP_REGISTER
        card.registers[abi.REG_AP_CTRL // 4] = abi.AP_START
        card.restart(chance.randrange(1, cycles))
        for number in (abi.REG_ARENA_COUNT // 4, abi.REG_CANCEL // 4):
            assert card.registers[number] == 0
    *_, completion, error = cases.register(card, "llama", 2)
    assert completion["status"] == abi.OK, error
    card.close()


def is_reset_at_any_cycle(card: SimulatedCard, seed: int) -> None:
    """All of it, in the middle of registrations and of steps: then both are done."""
    plan, *_ = cases.register(card, "llama", 1)
    ops = [KvOp.table(0, 0, plan.page_count - 1), KvOp.length(0, 0)]
    chance = random.Random(seed)

    def register() -> int:
        """Its cycles."""
        *_, completion, error = cases.register(card, "llama", 1)
        assert completion["status"] == abi.OK, error
        return int(completion["cycles"])

    def step() -> int:
        completion, error = cases.step(card, plan, 1, [Row(0, 0, 7, 0)], ops)
        assert completion["status"] == abi.OK, error
        assert seen(card, IDENTITY) == card.identity()
        return int(completion["cycles"])

    def cut(operation: int, place: int, cycles: int) -> None:
        """A reset within the first half of so many, while it runs."""
        card.registers[abi.REG_OPERATION // 4] = operation
        card.registers[abi.REG_CONTROL_BANK // 4] = CONTROL
        card.registers[abi.REG_BLOCK_OFFSET // 4] = place
        card.registers[abi.REG_AP_CTRL // 4] = abi.AP_START
        card.wait(chance.randrange(1000, cycles // 2))
        assert seen(card, STOP[:1])[0] in (abi.FW_RUNNING, abi.FW_WAITING)
        card.reset(chance.randrange(100))
        assert card.registers[abi.REG_ARENA_COUNT // 4] == 0

    registered, stepped = register(), step()
    want = list(card.started)
    for _ in range(2):
        cut(abi.OP_REGISTER, plan.boards[0].control.list_offset, registered)
        register()
        cut(abi.OP_STEP, plan.boards[0].control.block_offset, stepped)
        register()
        step()
        assert card.started == want


@pytest.mark.parametrize("seed", first_then_long(range(1, 9)))
def test_all_of_it_is_reset_at_any_cycle(seed: int) -> None:
    card = SimulatedCard(seed)
    is_reset_at_any_cycle(card, seed)
    card.close()


def test_the_host_sees_its_side_of_the_registers(card: SimulatedCard) -> None:
    """Done clears when it is read; what is read-only stays; nothing starts by itself."""
    card.set_arenas({CONTROL: 1 << 20})
    card.operate(abi.OP_IDENTIFY)
    assert not card.registers[abi.REG_AP_CTRL // 4] & abi.AP_DONE  # operate has read it
    for number in (abi.REG_IDENTITY_ABI // 4, abi.REG_LAST_STEP // 4, abi.REG_UNIT_STATE // 4):
        before = card.registers[number]
        card.registers[number] = before ^ 0x5A5A5A5A
        assert card.registers[number] == before
    card.registers[abi.REG_AP_CTRL // 4] = abi.AP_DONE
    assert not card.registers[abi.REG_AP_CTRL // 4] & (abi.AP_DONE | abi.AP_START)


MISTAKES = {
    "the window keeps its page": ("memory_window", "if (changed) {known, kept} <= 2'b00;", "")
}
MORE_MISTAKES = {
    "an arena of any bank": ("arena_table", " && {16'd0, banks[next]} == bank", ""),
}


@pytest.mark.parametrize(
    "name", [*MISTAKES, *(pytest.param(name, marks=pytest.mark.long) for name in MORE_MISTAKES)]
)
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    module, right, wrong = (MISTAKES | MORE_MISTAKES)[name]
    sources = mistaken(tmp_path, f"control/{module}.sv", right, wrong)
    built = load(build("libcard.so", sources, tmp_path / "build", "-O0"))
    card = SimulatedCard(1, built)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        card.set_arenas({CONTROL: 1 << 20})
        card.operate(abi.OP_IDENTIFY, slices=3)
        cases.test_it_runs_a_models_steps(card, "opt_post", 2)
