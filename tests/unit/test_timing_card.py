"""Cycles of a simulated card's commands by counts: what is counted, and single commands that were
measured (tests/rtl/card_units.py measures all of them)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.overlay import load_overlay
from lora_lab.timing.attention_counts import attention_counts
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_step import CardRow, CardStep, card_step_of
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.costs import gather_cycles
from lora_lab.timing.designs import load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.gather_counts import gather_counts
from lora_lab.timing.machine import machine_of
from lora_lab.timing.matmul_counts import Arrays, matmul_counts
from lora_lab.timing.move_counts import commit_counts
from lora_lab.timing.step import beams, decode, prefill
from lora_lab.timing.vector_counts import segments, vector_counts
from lora_sdk.compile import isa
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.collectives import Collective
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.placement import make_plan
from tests.rtl.router_cycles import CABLE, COLUMNS, CYCLES, counts
from tests.unit import simulated_layer
from tests.unit.plan_rig import LLAMA, LLAMA2_7B, overlay

VOCABULARY = 290  # of the layer that was simulated
ONE = CardStep((CardRow(20, (0,)),), (0,))


def vector(op: int, columns: int, extra: int = 0) -> isa.Vector:
    return isa.Vector(what="", op=op, columns=columns, extra=extra)


def matrix(k: int, n: int, weight_type: int = abi.WEIGHT_FP16) -> isa.Matrix:
    return isa.Matrix(
        what="", bank_first=0, bank_count=1, merge=1, weight_line=0, first=0, x_bank=0, y_bank=0,
        k=k, n=n, x_offset=0, x_stride=0, y_offset=0, y_stride=0, weight_type=weight_type,
    )  # fmt: skip


# Kind, counts, latency: cycles that one command took.
MEASURED = [
    (vector(abi.VEC_RESIDUAL, 64), 1, 8, 170),
    (vector(abi.VEC_RESIDUAL, 144), 3, 31, 1476),
    (vector(abi.VEC_RMS_SUMS, 64, 64), 1, 8, 511),
    (vector(abi.VEC_RMS_SUMS, 64, 64), 2, 31, 1117),
    (vector(abi.VEC_RMS_APPLY, 64, 64), 2, 8, 1005),
    (vector(abi.VEC_SWIGLU, 96), 1, 31, 1799),
    (vector(abi.VEC_ARGMAX, 290), 1, 8, 822),
    (matrix(64, 192), 1, 8, 6976),
    (matrix(96, 64), 2, 31, 4889),
]


@pytest.mark.parametrize(("command", "rows", "latency", "cycles"), MEASURED)
def test_single_commands_take_what_they_took(
    command: isa.Command, rows: int, latency: int, cycles: int
) -> None:
    chosen = overlay()
    plan = make_plan(LLAMA, chosen, chosen.board, 1, context=64)
    step = CardStep(tuple(CardRow(20, (i,)) for i in range(rows)), tuple(range(rows)))
    found = CardTiming(plan, 0, [command], latency).command(command, step)
    assert found == pytest.approx(cycles, rel=0.03)


ARRAYS = card_costs().arrays(31)


def layer_of_7b() -> tuple[Plan, list[isa.Command]]:
    """The list that was simulated."""
    config = replace(LLAMA2_7B, layers=1, vocabulary=VOCABULARY)
    config = quantized_as(config, "w4a8")
    assert config.quantization is not None
    config = replace(config, quantization=replace(config.quantization, kv="fp16"))
    chosen = load_overlay("lora_w4a8_u280")
    plan = make_plan(config, chosen, chosen.board, 1, context=384, sequences=2)
    return plan, lower(config, plan, 0, unit_scales(config))


def test_a_layer_of_llama2_7b_takes_what_was_simulated() -> None:
    plan, commands = layer_of_7b()
    timing = CardTiming(plan, 0, commands, 31, replace(card_costs(), lanes=32))
    step = CardStep((CardRow(127, (0,)),), (0,), ((64,),))
    assert timing.step(step).cycles == pytest.approx(simulated_layer.CYCLES, rel=0.01)
    matmuls = {
        (command.k, command.n): timing.command(command, step)
        for command in commands
        if isinstance(command, isa.Matrix) and command.n > VOCABULARY
    }
    assert matmuls == pytest.approx(simulated_layer.COMMANDS, rel=0.005)


@pytest.mark.parametrize("k", [128, 384, 1024, 1664, 4096, 11008, 32640])
@pytest.mark.parametrize("group", [0, 32, 64, 128])
def test_no_line_of_weights_takes_less_than_a_cycle(k: int, group: int) -> None:
    """Lines of a tile of 32 columns: of weights, and of W4A8 scales and zero points."""
    kind, lines = abi.WEIGHT_INT8, k // 2
    if group:
        kind = abi.WEIGHT_W4A8 | group.bit_length() - 1 << abi.WEIGHT_GROUP_SHIFT
        lines = k // 128 * (33 + 128 // group)
    found = matmul_counts(ARRAYS, matrix(k, 32 * 64, kind), 1)
    name = "w4a8" if group else "w8a8"
    assert 64 * lines <= found["cycle"] <= card_costs().cycles(name, found, 31)


# Cycles of a tile of 32 columns where many follow each other, of the array alone behind memory of
# 36 cycles: those of arbiter and arena port, 5, are in the card's costs.
TILES = {
    (128, 0): 111.5, (256, 0): 143.5, (4096, 0): 2050, (11008, 0): 5506, (512, 32): 184,
    (4096, 32): 1190, (11008, 32): 3188, (1152, 64): 319, (11008, 64): 3014, (128, 128): 130.5,
    (384, 128): 144.5, (512, 128): 155.5, (1024, 128): 274, (1664, 128): 448, (4096, 128): 1090,
    (5504, 128): 1468, (11008, 128): 2930,
}  # fmt: skip


@pytest.mark.parametrize(("k", "group"), TILES)
def test_tiles_of_the_int8_array_take_what_they_took(k: int, group: int) -> None:
    """Of 11008 columns six groups are cut by segments, whose scales are read once more."""
    kind = abi.WEIGHT_INT8
    if group:
        kind = abi.WEIGHT_W4A8 | group.bit_length() - 1 << abi.WEIGHT_GROUP_SHIFT
    found = matmul_counts(ARRAYS, matrix(k, 32, kind), 1)["cycle"]
    assert found == pytest.approx(TILES[k, group], rel=0.006 if k > 2048 else 0.03)


def test_segments_are_those_of_the_numbers() -> None:
    assert segments(64) == [32, 32]
    assert segments(144) == [32, 32, 32, 32, 16]
    assert segments(512) == [64] * 8
    assert segments(512, first=256, columns=256) == [64] * 4


def test_heads_that_begin_within_a_line_wait_for_it() -> None:
    narrow = vector_counts(vector(abi.VEC_ROPE, 96, 16), 2, 16)
    assert (narrow["group"], narrow["shared"]) == (12, 6)
    assert vector_counts(vector(abi.VEC_ROPE, 96, 32), 2, 32)["shared"] == 0


def test_a_round_that_cannot_be_read_in_time_is_waited_for() -> None:
    fast, late = (Arrays(8, 1, fill) for fill in (0, 50))
    assert matmul_counts(fast, matrix(64, 16), 1)["cycle"] == 2 * (256 + 32)
    assert matmul_counts(late, matrix(64, 16), 1)["cycle"] == 2 * (256 + 32)
    # the second round's side is free 32 cycles before the stripe begins
    assert matmul_counts(late, matrix(512, 8), 1)["cycle"] == 256 + 50 + 256
    assert matmul_counts(late, matrix(384, 8), 1)["cycle"] == 256 + 50 + 256
    assert matmul_counts(fast, matrix(512, 8), 3)["cycle"] == 3 * (512 + 32)


def test_attention_counts_tiles_pages_and_paths() -> None:
    chosen = overlay()
    kv = make_plan(LLAMA, chosen, chosen.board, 1, context=128).boards[0].kv
    command = next(
        c for c in lower(LLAMA, make_plan(LLAMA, chosen, chosen.board, 1, context=128), 0)
        if isinstance(c, isa.Attention)
    )  # fmt: skip
    heads = command.q_heads
    assert command.head_dim <= 32  # eight tiles side by side
    turns = 8 * command.head_dim
    one = attention_counts(kv, command, [CardRow(40, (3,))])
    assert one["block"] == heads * (2 + 1 + 2 + 1)  # K and V of two pages and of the slot's
    assert one["pass"] == heads * (1 + 1 + 2 + 1)  # a whole tile of V, eight positions, the slot
    assert one["step"] == heads * (2 * turns + 8 * 41)
    longer = attention_counts(kv, command, [CardRow(40, (3, 4, 33))])
    assert longer["step"] == heads * (3 * turns + 8 * 43)
    assert longer["block"] == heads * (2 + 2 + 2 + 3)
    assert attention_counts(kv, command, [CardRow(0, (3,))]).get("table", 0) == 0
    windowed = attention_counts(kv, replace(command, window=16), [CardRow(100, (3,))])
    assert windowed["block"] == heads * (2 + 1 + 2 + 1)  # positions 85 to 100
    assert windowed["step"] == heads * (2 * turns + 8 * 16)
    many = attention_counts(kv, command, [CardRow(32 * 127, (3,))])
    assert many["step"] == heads * (17 * turns + 8 * 32 * 16 + 8)


def test_positions_that_follow_each_other_are_moved_together() -> None:
    chosen = overlay()
    kv = make_plan(LLAMA, chosen, chosen.board, 1, context=64).boards[0].kv
    commit = isa.KvCommit(what="commit")
    together = commit_counts(kv, commit, [(30, 31)])
    assert together["run"] == 1 and together["head"] == kv.layers * kv.heads
    assert commit_counts(kv, replace(commit, layers=1), [(30, 31)])["head"] == kv.heads
    assert commit_counts(kv, commit, [(30, 31, 32, 40), (5,)])["run"] == 4


def test_a_gather_counts_the_busiest_lane() -> None:
    rows = Collective("", 4096, 32, 32, 2)
    two, four = gather_counts(rows, 2, False, 1), gather_counts(rows, 4, True, 1)
    assert (two["hop"], four["hop"]) == (1, 2)
    assert two["frame"] == 1 and four["frame"] > two["frame"]
    assert gather_counts(rows, 4, True, 16)["piece"] > 10 * four["piece"]


def test_a_step_is_its_commands_and_what_control_takes() -> None:
    """On one board each command waits for the one before."""
    chosen = overlay()
    plan = make_plan(LLAMA, chosen, chosen.board, 1, context=64)
    commands = lower(LLAMA, plan, 0)
    timing = CardTiming(plan, 0, commands, 31)
    found, each = timing.step(ONE), [timing.command(command, ONE) for command in commands]
    assert each[0] == 0 and sum(map(bool, each)) > 20  # the header commits nothing
    between = timing.costs.between * sum(map(bool, each))
    assert found.timeline.cycles == pytest.approx(sum(each) + between, rel=0.01)
    assert found.cycles == found.timeline.cycles + timing.besides(ONE)
    assert timing.besides(ONE) > 5000


def test_a_step_of_known_sizes_is_rows_in_chains() -> None:
    one = card_step_of(decode(40))
    assert one == CardStep((CardRow(39, (0,)),), (0,), ((0,),))
    found = card_step_of(prefill(3, start=10, committed=4))
    assert [row.visible for row in found.rows] == [11, 12, 13]
    assert found.selected == (2,) and found.commits == ((0, 1, 2, 3),)
    several = card_step_of(beams(1, 3, 50, 0))
    assert [row.visible for row in several.rows] == [50] * 3 and len(several.selected) == 3


@pytest.mark.parametrize("shape", CYCLES)
def test_gathers_take_what_they_took_by_counts(shape: tuple[int, int]) -> None:
    found = card_costs().cycles("gather", counts(*shape), 0)
    assert found == pytest.approx(CYCLES[shape], rel=0.15)


LINKS = {(2, 1): 139, (4, 1): 198, (8, 1): 356, (4, 16): 918, (4, 64): 3222}


@pytest.mark.parametrize("shape", CYCLES)
def test_designs_are_charged_hops_and_bytes_alone(shape: tuple[int, int]) -> None:
    """Of the Router's own work, which docs/timing.md tells, their links have nothing."""
    design = machine_of(load_design("own-u280"), board_facts("u280"))
    links = replace(design, hop_cycles=CABLE, port_rate=abi.LINE_BYTES)
    boards, rows = shape
    found, _ = gather_cycles(links, boards, COLUMNS, rows, 2)
    assert found == pytest.approx(LINKS[shape], abs=1) and 1.6 * found < CYCLES[shape]


def test_a_command_without_costs_is_named() -> None:
    with pytest.raises(RequestError, match="'other' has no cycles"):
        card_costs().cycles("other", {"command": 1}, 31)
