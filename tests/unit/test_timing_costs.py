"""Costs of single operators, worked out by hand."""

from dataclasses import replace

import pytest

from lora_lab.timing import costs
from lora_lab.timing import step as steps
from lora_lab.timing.designs import ArrayDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.machine import Machine, machine_of
from lora_lab.timing.ops import MPU, ROUTER, VFU, WEIGHTS, Op
from lora_lab.timing.schedule import schedule
from lora_lab.timing.shape_ops import step_ops
from lora_sdk.model.shapes import shape_config


def machine(name: str = "lora-f") -> Machine:
    design = load_design(name)
    assert isinstance(design, ArrayDesign)
    return machine_of(design, board_facts(design.boards[0]))


def test_a_block_has_nine_operators_and_three_products_of_attention() -> None:
    made = machine()
    config = shape_config("gpt2-345m")
    ops = step_ops(made, config, 1, steps.decode(300))
    assert sum(op.start for op in ops) == pytest.approx(config.layers * 9 * 115.87)
    assert sum(op.macs for op in ops if op.category == WEIGHTS) == 24 * 12 * 1024 * 1024
    assert sum(op.bytes for op in ops if op.category == WEIGHTS) == 2 * 24 * 12 * 1024 * 1024
    # 256 of the 300 positions lie on chip (VI.A): K and V of 44 come from memory.
    assert sum(op.bytes for op in ops if op.category != WEIGHTS) == 24 * 2 * 1024 * 2 * 44


def test_products_as_vectors_and_as_matrices() -> None:
    made = machine()
    vector = costs.matrix_cycles(made, 1, 1024, 1024)
    assert vector == pytest.approx(1024 * (1 + 10.2 / 32))
    assert costs.matrix_cycles(made, 3, 1024, 1024) == pytest.approx(3 * vector)
    whole = 32 * 1024 * (1 + 10.2 / 64) + 32 * 28.13
    assert costs.matrix_cycles(made, 32, 1024, 1024) == pytest.approx(whole)
    assert costs.matrix_cycles(made, 16, 1024, 1024) == pytest.approx(whole)  # padded to 32 rows
    assert costs.matrix_cycles(made, 33, 1024, 1024) == pytest.approx(2 * whole)
    assert costs.matrix_cycles(made, 0, 1024, 1024) == 0
    assert costs.matrix_passes(made, 32) == 1 and costs.matrix_passes(made, 33) == 2
    rows = machine("dfx")
    assert costs.matrix_cycles(rows, 32, 64, 64) == 32 * costs.matrix_cycles(rows, 1, 64, 64)


def test_exchanges_are_packed_by_sixteen_rows() -> None:
    made = machine()  # a hop is 300 ns, 60 cycles
    assert costs.exchange_cycles(made, 1, 5, 0.0) == 0
    assert costs.exchange_cycles(made, 4, 1, 100.0) == pytest.approx(180)
    assert costs.exchange_cycles(made, 4, 16, 0.0) == pytest.approx(180)
    assert costs.exchange_cycles(made, 4, 33, 0.0) == pytest.approx(3 * 180)
    assert costs.exchange_cycles(made, 4, 33, 3 * 180.0) == pytest.approx(180)  # hidden behind sums


def test_gathers_go_half_way_round_over_both_links() -> None:
    made = machine()  # 32 bytes a cycle and link
    assert costs.gather_cycles(made, 1, 1024, 1, 2) == (0.0, 0.0)
    two, sent = costs.gather_cycles(made, 2, 1024, 1, 2)
    assert two == pytest.approx(60 + 1024 / 32) and sent == 1024
    four, _ = costs.gather_cycles(made, 4, 1024, 1, 2)
    assert four == pytest.approx(2 * 60 + 1536 / 2 / 32)


def test_softmax_and_norms_on_eight_lanes() -> None:
    made = machine()
    assert made.norm_cycles == pytest.approx(61.6)
    assert costs.norm_cycles(made, 2, 1024, True) == pytest.approx(2 * (3 * 128 + 61.6))
    assert costs.norm_cycles(made, 1, 1024, False) == pytest.approx(2 * 128 + 61.6)
    assert costs.softmax_cycles(made, 1, 16, 100) == pytest.approx(4 * 16 * 100 / 8 + 61.6)


def test_fused_softmax_and_rows_in_flight() -> None:
    """Two passes over scores and one over outputs; all heads but the first hide the shorter part;
    the array fills once for a few rows, and as a GEMM from half an array of rows on."""
    plain, own = machine(), replace(machine(), fused_softmax=True, rows_in_flight=True)
    assert costs.softmax_cycles(own, 1, 16, 100) == pytest.approx(2 * 16 * 100 / 8 + 61.6)
    assert costs.attention_parts(plain, 64, 16, 2, 500.0, 900.0) == (1400.0, 900.0)
    outputs = 2 * 16 * 64 / 8
    whole, vector = costs.attention_parts(own, 64, 16, 2, 500.0, 900.0)
    assert (whole, vector) == pytest.approx((900 + outputs + 500 / 16, 900 + outputs))
    whole, vector = costs.attention_parts(own, 64, 16, 2, 9000.0, 900.0)
    assert whole == pytest.approx(9000 + (900 + outputs) / 16) and vector == 900 + outputs
    once = 64 * 64 / own.macs
    filled = own.fill_cycles / own.tile
    assert costs.matrix_cycles(own, 1, 64, 64) == costs.matrix_cycles(plain, 1, 64, 64)
    assert costs.matrix_cycles(own, 4, 64, 64) == pytest.approx(once * (4 + filled))
    half = own.rows // 2
    assert costs.matrix_cycles(own, half, 64, 64) == costs.matrix_cycles(plain, half, 64, 64)


def op(unit: str, compute: float, **fields) -> Op:
    return Op(unit=unit, category="vfu" if unit == VFU else WEIGHTS, what="", layer=0,
              compute=compute, **fields)  # fmt: skip


def test_what_local_work_does_not_cover_of_a_gather_is_exposed() -> None:
    """max(0, gather - product / n), the product itself always counts."""
    for gather, product, exposed in ((30.0, 100.0, 5.0), (20.0, 100.0, 0.0), (90.0, 100.0, 65.0)):
        ops = [
            op(VFU, 10.0),
            op(ROUTER, gather, after=(0,)),
            op(MPU, product, after=(1,), segments=True, local=0.25),
        ]
        found = schedule(ops)
        assert found.cycles == pytest.approx(10 + product + exposed)
        assert found.by["link_exposed"] == pytest.approx(exposed)
        assert found.hidden == pytest.approx(gather - exposed)


def test_memory_is_beside_the_product_and_ahead_by_the_buffer() -> None:
    ops = [op(MPU, 50.0, stream=80.0), op(VFU, 40.0, after=(0,)),
           op(MPU, 50.0, stream=80.0, after=(1,))]  # fmt: skip
    assert schedule(ops).cycles == 80 + 40 + 80
    assert schedule(ops, 30.0).cycles == 80 + 40 + 50  # thirty cycles of bytes came in the gap
    assert schedule(ops, 1e9).cycles == 80 + 80 + 10  # the product itself is the limit then
    assert schedule(ops).stall == 60


def test_memory_begins_when_the_unit_is_told() -> None:
    """Of a unit that is told its next operator, or the two behind the one that runs."""
    ops = [op(MPU, 50.0, stream=10.0), op(MPU, 40.0), op(MPU, 50.0, stream=100.0)]
    assert schedule(ops, 1e9).cycles == 50 + 100
    assert schedule(ops, 1e9, ahead=2).cycles == 50 + 40 + 50  # from 10 on
