"""What the control program costs: the firmware image runs again and its counts are those of
data/control.yaml."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from lora_host import abi
from lora_host.boards import load_board
from lora_host.overlay import load_overlay
from lora_lab.timing import step as steps
from lora_lab.timing.command_count import command_count
from lora_lab.timing.control import Cost, list_costs, part_costs
from lora_lab.timing.overheads import DISPATCHERS
from lora_lab.timing.schedule import schedule
from lora_lab.timing.target import make_target
from lora_sdk.compile.isa import encode
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.model.config import normalize
from lora_sdk.model.fields import Fields
from lora_sdk.model.quantization import unit_scales
from lora_sdk.model.shapes import shape_config
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.placement import make_plan
from lora_sdk.recovery.sum_pace import SumFacts
from lora_sdk.step.step import Row, build_block
from tests.unit.card_core import CONTROL
from tests.unit.plan_rig import EXPERTS_WIDE, GPT2, MODELS, quantized
from tests.unit.timed_core import TimedCard
from tests.variants import VARIANTS

CLOCK = 250e6
MPU, VFU, ROUTER, DMA = abi.UNIT_MPU, abi.UNIT_VFU, abi.UNIT_ROUTER, abi.UNIT_DMA
DURATIONS = {MPU: 12_000, VFU: 1_000, DMA: 600, ROUTER: 1_000}  # cycles of a command
ROWS = 64


class Rig:
    """A card, timed if none is given, with a registered list and one sequence in its KV cache."""

    def __init__(self, plan, commands, card=None) -> None:
        self.plan, self.card = plan, card or TimedCard(CLOCK, DURATIONS)
        board = plan.boards[0]
        self.card.set_arenas(board.arenas)
        place = board.control.list_offset
        self.card.write(CONTROL, place, encode(commands, plan, 0, 0))
        completion, error = self.card.operate(abi.OP_REGISTER, BLOCK_OFFSET=place, LIST_ID=0)
        assert completion["status"] == abi.OK, error
        self.card.answer_votes(board.control.votes_offset, plan.size)
        self.number = self.length = 0
        self.pending: list[int] = []
        self.tables = [
            KvOp.table(0, tile, plan.page_count - 1 - tile)
            for tile in range(plan.context // abi.TILE_POSITIONS)
        ]

    def step(self, rows: int, chain: bool = False) -> None:
        """Commits the last step's first row, or all of its chain, then runs `rows` rows."""
        ops = [*self.tables, KvOp.length(0, 0)] if not self.number else []
        self.tables = []
        if self.pending:
            ops.append(KvOp.commit(0, self.length, 0, len(self.pending)))
            self.length += len(self.pending)
        base = ROWS if self.number % 2 else 0
        made = [
            Row(0, self.length + (i if chain else 0), 7, base + i,
                parent=base + i - 1 if chain and i else -1, want_argmax=i == rows - 1)
            for i in range(rows)
        ]  # fmt: skip
        block = build_block(made, ops, self.pending, 0, self.plan.config.embed_dim)
        self.number += 1
        np.frombuffer(block, abi.dtype("step"), 1)["step"] = self.number
        place = self.plan.boards[0].control.block_offset
        self.card.write(CONTROL, place, bytes(block))
        self.card.begin()
        completion, error = self.card.operate(
            abi.OP_STEP, BLOCK_OFFSET=place, LIST_ID=0, STEP=self.number, EPOCH=0
        )
        assert completion["status"] == abi.OK, error
        self.pending = [base + i for i in range(rows if chain else 1)]

    def generate(self, tokens: int) -> tuple[np.ndarray, int]:
        """A GENERATE after a step of one row. Returns what passes between commands while no unit
        runs, in all, and how many commands ran."""
        block = build_block(
            [Row(0, self.length + 1, 7, 100, want_argmax=True)],
            [KvOp.commit(0, self.length, 0, 1)], self.pending, 0, self.plan.config.embed_dim,
        )  # fmt: skip
        row, at = bytes(block[-abi.dtype("row").itemsize :]), len(block)
        record = np.zeros((), abi.dtype("generate"))
        record["size"], record["max_tokens"] = record.nbytes, tokens
        record["slots"][:3] = 100, 101, 102
        record["row"] = np.frombuffer(row, abi.dtype("row"))[0]
        block += record.tobytes()
        header = np.frombuffer(block, abi.dtype("step"), 1)
        self.number += 1
        header["step"], header["bytes"], header["generate_offset"] = self.number, len(block), at
        header["rows_offset"] = at + abi.dtype("generate").fields["row"][1]
        place = self.plan.boards[0].control.block_offset
        self.card.write(CONTROL, place, bytes(block))
        self.card.begin()
        completion, error = self.card.operate(
            abi.OP_GENERATE, 4000, BLOCK_OFFSET=place, LIST_ID=0, STEP=self.number, EPOCH=0, TOKEN=0
        )
        assert completion["status"] == abi.OK, error
        assert completion["tokens"] == tokens
        self.number, self.length = int(completion["step"]), self.length + tokens
        self.pending = [100 + (tokens - 1) % 3]
        count = len(self.card.started)
        return np.array(list(vars(self.card.command_cost()).values())) * (count - 1), count


def llama_plan(boards: int, dynamic: bool = False):
    """(model, placement) of LLaMA2-7B in W4A8; `dynamic`: with a scale per row of inputs."""
    overlay = load_overlay("lora_w4a8_u280")
    config = quantized_as(shape_config("llama2-7b"), overlay.precision)
    if dynamic and (found := config.quantization):
        formats = {name: replace(form, dynamic=True) for name, form in found.formats.items()}
        config = replace(config, quantization=replace(found, formats=formats))
    return config, make_plan(config, overlay, load_board("u280"), boards)


def llama(boards: int) -> Rig:
    """One row group a step: a shorter dry run of the same commands."""
    config, plan = llama_plan(boards)
    plan = replace(plan, row_limit=16)
    return Rig(plan, lower(config, plan, 0, unit_scales(config)))


def at_context(rig: Rig, context: int, rows: int) -> Rig:
    """The next step attends to at least `context` positions."""
    while rig.length + len(rig.pending) < context:
        rig.step(rows, chain=True)
    rig.step(1)
    rig.step(1)  # the chain's slots are no longer what a step keeps a copy of
    return rig


def near(found: Cost, expected: Cost) -> bool:
    pairs = zip(vars(found).values(), vars(expected).values(), strict=True)
    return all(abs(a - b) <= 0.005 * b + 0.6 for a, b in pairs)


@pytest.mark.parametrize(
    "boards", [1, *(pytest.param(boards, marks=pytest.mark.slow) for boards in (2, 4, 8, 32))]
)
def test_a_list_costs_what_the_data_say(boards: int) -> None:
    rig = llama(boards)
    rig.step(1)
    rig.step(1)
    expected = max((e for e in list_costs() if e.boards <= boards), key=lambda e: e.boards)
    found = rig.card.command_cost(), rig.card.step_cost()
    assert len(rig.card.started) == expected.commands
    assert near(found[0], expected.command), found
    assert near(found[1], expected.step), found


@pytest.mark.slow
@pytest.mark.parametrize("boards", [1, 4])
def test_a_token_that_boards_choose_costs_what_the_data_say(boards: int) -> None:
    """The third one: from then on the state of two steps is kept."""
    rig = llama(boards)
    rig.step(1)
    expected = next(entry for entry in list_costs() if entry.boards == boards)
    several, commands = rig.generate(3)
    two, fewer = rig.generate(2)
    assert commands - fewer == expected.commands
    each = np.array(list(vars(expected.command).values()))
    token = Cost(*(several - two - (commands - fewer - 1) * each))
    assert near(token, expected.token), (token, expected.token)


def test_rows_commits_and_tiles_cost_what_the_data_say() -> None:
    """On a small list: the header's part of a step does not depend on the commands."""
    overlay = load_overlay("lora_f_u280")
    plan = make_plan(GPT2, overlay, load_board("u280"), 1)
    rig = Rig(plan, lower(GPT2, plan, 0))

    def cost(rows: int, chain: bool = False) -> np.ndarray:
        rig.step(rows, chain)
        return np.array(list(vars(rig.card.step_cost()).values()))

    rig.step(1)
    one = cost(1)
    found = {"row": (cost(17) - one) / 16}
    rig.step(16, chain=True)
    found["commit"] = (cost(1) - one) / 15
    at_context(rig, 128, 31)
    found["tile"] = (cost(1) - one) / (-(-(rig.length + 1) // abi.TILE_POSITIONS) - 1)
    for name, counts in found.items():
        assert near(Cost(*counts), part_costs()[name]), (name, counts)


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_shapes_have_as_many_commands_as_lists(name: str, boards: int) -> None:
    plan = make_plan(MODELS[name], load_overlay("lora_f_u280"), load_board("u280"), boards)
    found = max(run_by_units(lower(plan.config, plan, rank)) for rank in range(boards))
    assert command_count(MODELS[name], boards, integer=False) == found


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8_dynamic"])
@pytest.mark.parametrize("boards", [1, 4])
def test_quantized_experts_have_as_many_commands_as_lists(boards: int, scheme: str) -> None:
    config = quantized(replace(EXPERTS_WIDE, heads=8, kv_heads=4), scheme)
    config = replace(config, quantization=replace(config.quantization, kv="int8-heads"))
    overlay, scales = load_overlay("lora_w4a8_u280"), unit_scales(config)
    plan = make_plan(config, overlay, load_board("u280"), boards)
    lists = [lower(config, plan, rank, scales) for rank in range(boards)]
    assert command_count(config, boards, integer=True) == max(map(run_by_units, lists))


@pytest.mark.parametrize("kind", sorted({one.config["model_type"] for one in VARIANTS}))
def test_every_family_has_as_many_commands_as_its_list(kind: str) -> None:
    which = next(one for one in VARIANTS if one.config["model_type"] == kind)
    config = normalize(Fields(which.config, "config.json"))
    for boards in (1, 2):
        plan = make_plan(config, load_overlay("lora_f_u280"), load_board("u280"), boards)
        found = max(run_by_units(lower(config, plan, rank)) for rank in range(boards))
        assert command_count(config, boards, integer=False) == found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("boards", [1, 4, 16])
def test_quantized_shapes_have_as_many_commands_as_lists(boards: int, dynamic: bool) -> None:
    config, plan = llama_plan(boards, dynamic)
    listed = lower(config, plan, 0, unit_scales(config))
    assert command_count(config, boards, integer=True) == run_by_units(listed)


def run_by_units(commands) -> int:
    return sum(command.UNIT != abi.UNIT_CONTROL for command in commands)


def test_overheads_add_to_the_latency_and_to_every_span() -> None:
    found = make_target("own-u280", None, shape_config("llama2-7b"), 4)
    shape = steps.decode(128)
    ops = found.ops(shape)
    bare = schedule(ops, found.machine.prefetch_cycles, keep=True)
    whole = found.timeline(ops, shape, keep=True)
    added = whole.by["dispatch"] + whole.by["host"] + whole.by["scrub"]
    assert whole.by["scrub"] == pytest.approx(0.01 * bare.cycles)
    added += whole.by["link_exposed"] - bare.by["link_exposed"]  # the boards' votes
    assert whole.cycles == pytest.approx(bare.cycles + added)
    assert sum(whole.by.values()) == pytest.approx(whole.cycles)
    moved = [a.begin - b.begin for a, b in zip(whole.spans, bare.spans, strict=True)]
    assert moved[0] > 0 and moved == sorted(moved)
    assert whole.spans[-1].end < whole.cycles


@pytest.mark.parametrize("control", sorted(DISPATCHERS))
def test_rows_commits_and_context_lengthen_the_dispatch_of_a_step(control: str) -> None:
    dispatch = DISPATCHERS[control](1, CLOCK)
    one = dispatch.before(steps.decode(32))
    assert one == pytest.approx(dispatch.token) != pytest.approx(dispatch.step)
    verified = dispatch.before(replace(steps.verify(8, 32), committed=1))
    assert verified - dispatch.step == pytest.approx(7 * dispatch.row)
    assert dispatch.before(steps.decode(64)) - one == pytest.approx(dispatch.tile)
    behind = dispatch.before(replace(steps.decode(32), committed=4))
    assert behind - dispatch.step == pytest.approx(3 * dispatch.commit)


@pytest.mark.parametrize("control", sorted(DISPATCHERS))
def test_each_board_beyond_the_counted_ones_adds_its_vote(control: str) -> None:
    by_boards = [DISPATCHERS[control](boards, CLOCK).step for boards in (16, 32, 48, 64)]
    added = np.diff(by_boards)
    assert added[0] > 0 and added == pytest.approx(added[0])


@pytest.mark.parametrize("slices", [1, 8])
def test_a_sum_of_weights_costs_no_more_than_the_data_say(slices: int) -> None:
    """Between two sums, of regions of one or eight commands. The card's sums are 0."""
    overlay = load_overlay("lora_f_u280")
    plan = make_plan(GPT2, overlay, load_board("u280"), 1)
    rig, size, count = Rig(plan, lower(GPT2, plan, 0)), 1 << 12, 16
    regions = np.zeros(count, abi.dtype("region"))
    regions["bytes"] = size
    header = np.zeros(1, abi.dtype("scrub"))
    header["size"], header["region_count"] = header.itemsize, count
    header["slice_bytes"] = size // slices
    header["crc"] = crc32(regions.tobytes())
    place = plan.boards[0].control.regions_offset
    rig.card.write(CONTROL, place, header.tobytes() + regions.tobytes())
    completion, error = rig.card.operate(abi.OP_REGIONS, BLOCK_OFFSET=place)
    assert completion["status"] == abi.OK, error
    rig.card.begin()
    completion, error = rig.card.operate(abi.OP_SCRUB, BYTES_LO=0, BYTES_HI=0)
    state = completion["scrub"]
    assert (state["passes"], state["sums"], state["damaged"]) == (1, slices * count, 0)
    cost = rig.card.command_cost()
    found = cost.instructions + cost.window * rig.card.latency["window"]
    found += cost.register * rig.card.latency["register"]
    charged = SumFacts().command_cycles
    assert found <= charged
    assert slices > 1 or found > 0.8 * charged
