"""The overlay's firmware image on an emulated rv32 core: the code that a card runs, not the host's
build of the same source."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from lora_host import abi
from lora_sdk.compile.isa import encode
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.plan.placement import make_plan
from lora_sdk.step.step import Row, build_block
from tests.unit import plan_rig
from tests.unit.card_core import CARD, CONTROL, Card


@pytest.fixture
def card() -> Card:
    return Card()


def register(card: Card, model: str, boards: int, rank: int = 0):
    """Places and registers one board's list; returns (plan, commands, completion, error)."""
    config = plan_rig.LLAMA2_7B if model == "llama2_7b" else plan_rig.MODELS[model]
    plan = make_plan(config, plan_rig.overlay(), plan_rig.board(), boards)
    commands = lower(config, plan, rank)
    board = plan.boards[rank]
    card.set_arenas(board.arenas)
    card.write(CONTROL, board.control.list_offset, encode(commands, plan, rank, 0))
    place = board.control.list_offset
    return plan, commands, *card.operate(abi.OP_REGISTER, BLOCK_OFFSET=place, LIST_ID=0)


def test_it_says_who_it_is(card: Card) -> None:
    card.set_arenas({CONTROL: 1 << 20})
    completion, error = card.operate(abi.OP_IDENTIFY)
    assert (completion["abi"], completion["status"]) == (abi.ABI_NUMBER, abi.OK)
    assert error["code"] == abi.OK
    assert card.registers[abi.REG_IDENTITY_ABI // 4] == abi.ABI_NUMBER


def step(card: Card, plan, number: int, rows: list[Row], kv_ops=(), path=()):
    block = build_block(rows, kv_ops, path, 0, plan.config.embed_dim)
    header = np.frombuffer(block, abi.dtype("step"), 1)
    header["step"] = number
    place = plan.boards[0].control.block_offset
    card.write(CONTROL, place, bytes(block))
    return card.operate(abi.OP_STEP, BLOCK_OFFSET=place, LIST_ID=0, STEP=number, EPOCH=0)


@pytest.mark.parametrize(("model", "boards"), [("llama", 1), ("opt_post", 2), ("gpt2", 4)])
def test_it_runs_a_models_steps(card: Card, model: str, boards: int) -> None:
    plan, commands, completion, error = register(card, model, boards)
    assert completion["status"] == abi.OK, error
    card.answer_votes(plan.boards[0].control.votes_offset, boards)
    ops = [KvOp.table(0, 0, plan.page_count - 1), KvOp.length(0, 0)]
    rows = [Row(0, 0, 7, 0), Row(0, 1, 8, 1, parent=0, want_argmax=True)]
    completion, error = step(card, plan, 1, rows, ops)
    assert completion["status"] == abi.OK, error
    assert (completion["row_count"], completion["selected_count"]) == (2, 1)
    for unit in (abi.UNIT_MPU, abi.UNIT_VFU, abi.UNIT_ROUTER, abi.UNIT_DMA):
        found = [record[0] for where, record in card.started if where == unit]
        ran = [c for c in commands if unit == c.UNIT]
        assert found == [command.OPCODE for command in ran]
    completion, error = step(card, plan, 2, [Row(0, 2, 9, 2)], [KvOp.commit(0, 0, 0, 2)], [0, 1])
    assert completion["status"] == abi.OK, error
    completion, error = step(card, plan, 3, [Row(0, 9, 9, 3)])
    assert (completion["status"], error["row"]) == (abi.ERR_ROW, 0)
    assert (error["found"], error["expected"]) == (9, 2)


def test_a_digest_of_another_board_fails_the_step(card: Card) -> None:
    plan, _, completion, error = register(card, "gpt2", 2)
    assert completion["status"] == abi.OK, error
    card.answer_votes(plan.boards[0].control.votes_offset, 2, differ=1)
    ops = [KvOp.table(0, 0, plan.page_count - 1), KvOp.length(0, 0)]
    completion, error = step(card, plan, 1, [Row(0, 0, 7, 0)], ops)
    assert (completion["status"], error["unit"]) == (abi.ERR_GATHERED, abi.UNIT_ROUTER)
    assert error["found"] == error["expected"]  # two boards: rank 0 is believed


def test_it_registers_a_model_of_the_papers_size(card: Card) -> None:
    _, commands, completion, error = register(card, "llama2_7b", 4, rank=3)
    assert completion["status"] == abi.OK, error
    assert len(commands) > 500


def test_it_refuses_an_address_beyond_its_arena(card: Card) -> None:
    plan, commands, _, _ = register(card, "llama", 2)
    first = next(i for i, command in enumerate(commands) if command.OPCODE == abi.CMD_MATRIX)
    arenas = dict(plan.boards[0].arenas)
    matrix = commands[first]
    arenas[matrix.bank_first] = matrix.weight_line * abi.LINE_BYTES + 64
    card.set_arenas(arenas)
    place = plan.boards[0].control.list_offset
    completion, error = card.operate(abi.OP_REGISTER, BLOCK_OFFSET=place, LIST_ID=0)
    assert completion["status"] == abi.ERR_ADDRESS
    assert error["bank"] == matrix.bank_first


class SummingCard(Card):
    """Its DMA unit sums what the command names."""

    def _read_unit(self, core, offset, size, data):
        unit, place = divmod(offset, CARD["CARD_UNIT_STRIDE"])
        if (unit, place) != (abi.UNIT_DMA, CARD["CARD_UNIT_VALUE"]):
            return super()._read_unit(core, offset, size, data)
        command = np.frombuffer(bytes(self.command), abi.dtype("checksum"))[0]
        at = int(command["offset_lo"])
        found = self.banks[int(command["bank"])][at : at + int(command["bytes"])]
        return crc32(found, int(command["crc"]))


def test_it_sums_regions_of_weights_and_names_the_damaged_one() -> None:
    card, place, count, size = SummingCard(), 0x2000, 5, 320
    card.set_arenas({0: 1 << 16, CONTROL: 1 << 20})
    weights = bytes(range(256)) * 8
    card.write(0, 64, weights)
    regions = np.zeros(count, abi.dtype("region"))
    regions["offset"], regions["bytes"] = 64 + size * np.arange(count), size
    regions["expected"] = [crc32(weights[size * i : size * (i + 1)]) for i in range(count)]
    regions["good_step"] = 9
    header = np.zeros(1, abi.dtype("scrub"))
    header["size"], header["region_count"], header["slice_bytes"] = header.itemsize, count, 128
    header["crc"] = crc32(regions.tobytes())
    card.write(CONTROL, place, header.tobytes() + regions.tobytes())
    completion, error = card.operate(abi.OP_REGIONS, BLOCK_OFFSET=place)
    assert completion["status"] == abi.OK, error
    completion, error = card.operate(abi.OP_SCRUB, BYTES_LO=0)
    assert completion["status"] == abi.OK, error
    state = completion["scrub"]
    assert (state["passes"], state["sums"], state["damaged"]) == (1, 3 * count, 0)
    card.banks[0][64 + 3 * size + 319] ^= 4
    state = card.operate(abi.OP_SCRUB, BYTES_LO=0)[0]["scrub"]
    assert (state["passes"], state["damaged"], state["expected"]) == (1, 4, regions["expected"][3])
    assert state["found"] == crc32(bytes(card.banks[0][64 + 3 * size : 64 + 4 * size]))
    table = np.frombuffer(card.banks[CONTROL], abi.dtype("region"), count, place + header.nbytes)
    assert table["good_step"].tolist() == [0, 0, 0, 0, 0]
    assert (table["found"] == regions["expected"]).tolist() == [True, True, True, False, True]
