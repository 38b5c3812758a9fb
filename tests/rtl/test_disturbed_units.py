"""Abort, reset and announce at random cycles, memory that answers in any order, registers of any
bits: the next command's bytes are those of the NumPy model, and an ended command has written
nothing but the begin of its own rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from tests.rtl import test_adapter_products as adapters
from tests.rtl import test_int8_matmul as int8
from tests.rtl import test_vector_folds as folds
from tests.rtl import test_w4a16_matmul as w4a16
from tests.rtl import vector_rig
from tests.rtl.adapter_rig import Down, Slots, plain_up, same_down, same_up
from tests.rtl.attention_rig import Attention
from tests.rtl.disturbed_rig import Counts, disturbed
from tests.rtl.test_fp16_matmul import any_bits, normal
from tests.rtl.test_vector_unit import sums
from tests.rtl_rig import FP16, FP32, Matmul, same
from tests.unit.kernel_rig import TABLES

pytestmark = pytest.mark.rtl

ARRAY_STATES, VECTOR_STATES, ATTENTION_STATES = 4, 16, 25
DOWN_STATES = (0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)  # of adapter.sv
UP_STATES = (*DOWN_STATES, 2, 13)
TIMES = [1, pytest.param(4, marks=pytest.mark.long)]


def fp16(units: Any) -> bool:
    shapes = ((300, 100, 1), (70, 40, 3), (1100, 33, 2), (31, 7, 2))
    cases = [Matmul(normal(1, rows, k), normal(2, k, n), normal(3, n)) for k, n, rows in shapes]
    cases.append(Matmul(any_bits(1, 2, 40), any_bits(2, 40, 64), any_bits(3, 64), FP16))
    return all([same(case, units) for case in cases])


def four_bit_fp16(units: Any) -> bool:
    shapes = ((32, 96, 70, 2), (64, 384, 40, 1), (128, 1152, 33, 2))
    return all(
        [
            w4a16.same(units, normal(g, rows, k), n, g, normal, FP32, bias)
            for g, k, n, rows in shapes
            for bias in (None, normal(3, n))
        ]
    )


def eight_bit(units: Any) -> bool:
    cases = (
        int8.Matmul(131, 64, 1), int8.Matmul(700, 45, 2, bias=False, y_type=FP32),
        int8.Matmul(31, 16, 3, row_scales=True), int8.Matmul(1024, 33, extreme=0.1),
    )  # fmt: skip
    return all([int8.simulated(units, case) for case in cases])


def four_bit_int8(units: Any) -> bool:
    cases = (
        int8.Matmul(128, 64, 1, 32), int8.Matmul(384, 45, 2, 64, row_scales=True),
        int8.Matmul(1152, 33, 1, 128, bias=False, y_type=FP32),
        int8.Matmul(96, 40, 3, 32, extreme=0.1),
    )  # fmt: skip
    return all([int8.simulated(units, case) for case in cases])


MATMULS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "fp16": ("fp16", fp16),
    "w4a16": ("fp16", four_bit_fp16),
    "w8a8": ("int8", eight_bit),
    "w4a8": ("int8", four_bit_int8),
}


def check(counts: Counts, least: dict[str, int]) -> None:
    """No mistake, and at least so many of each kind."""
    assert counts.error == ""
    short = {name: counts.found[name] for name, n in least.items() if counts.found[name] < n}
    assert not short, f"{short} of at least {least}"


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", MATMULS)
def test_matmuls(units: Any, name: str, times: int) -> None:
    unit, family = MATMULS[name]
    with disturbed(units, unit, 80 * times, seed=times) as counts:
        right = family(units)
    check(counts, {
        "aborts": 150 * times, "aborts_announced": 30 * times, "aborts_with_reads": 60 * times,
        "aborts_with_read_left": 20 * times, "aborts_with_write_left": 8 * times,
        "resets": 60 * times, "resets_with_reads": 25 * times, "announces": 120 * times,
        "foreign": 50 * times, "power_ups": 10 * times,
    })  # fmt: skip
    assert right and not counts.missing(10 * times, ARRAY_STATES)


def embedding(units: Any) -> bool:
    """Rows that bring vectors, and table rows by token and position."""
    x = normal(1, 4, 70)
    fields = {"a_bank": TABLES, "a_line": 10, "b_bank": TABLES, "b_line": 100}
    places = ((TABLES, 640, normal(2, 40, 96)), (TABLES, 6400, normal(3, 40, 96)))
    return vector_rig.same(units, abi.VEC_EMBED, x, None, places, vectors=True, **fields)


def elements(units: Any) -> bool:
    x, z = any_bits(1, 2, 90), any_bits(2, 2, 90)
    norm = {"extra": 90, "scalar": vector_rig.bits(1e-5)}
    in_place = x.view(np.float32)
    return all([
        vector_rig.same(units, abi.VEC_GELU_TANH, x), vector_rig.same(units, abi.VEC_SWIGLU, x, z),
        vector_rig.same(units, abi.VEC_RESIDUAL, x, z),
        vector_rig.same(units, abi.VEC_QUANTIZE, x, scalar=vector_rig.bits(12.5)),
        vector_rig.same(units, abi.VEC_SOFTCAP, in_place, scalar=vector_rig.bits(30.0)),
        vector_rig.same(units, abi.VEC_LN_APPLY, normal(3, 2, 90), sums(1, 2, 90, True), **norm),
        embedding(units),
    ])  # fmt: skip


def folded(units: Any) -> bool:
    """All operations of test_vector_folds; each says what it found wrong."""
    for seed, name in enumerate(folds.MAKERS):
        assert folds.compare(units, name, folds.finite, seed, 2, 130) > 0
    return True


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("family", [elements, folded])
def test_vector_unit(units: Any, family: Callable[[Any], bool], times: int) -> None:
    with disturbed(units, "vfu", 60 * times, seed=times) as counts:
        right = family(units)
    check(counts, {
        "aborts": 150 * times, "aborts_with_reads": 25 * times,
        "aborts_with_read_left": 8 * times, "aborts_with_write_left": 12 * times,
        "resets": 60 * times, "resets_with_reads": 10 * times, "foreign": 50 * times,
        "power_ups": 10 * times,
    })  # fmt: skip
    assert right
    if family is folded:
        assert not counts.missing(times, VECTOR_STATES)


@pytest.mark.parametrize("times", TIMES)
def test_attention(units: Any, times: int) -> None:
    fields = {"slope_kind": abi.SLOPE_DISTANCE, "cap": vector_rig.bits(30.0)}
    kinds = ("fp16", "int8", "int8_heads")
    cases = [Attention(kind, 16, (40, 3, 0), 2, (2, 1, 2), seed=1, fields=fields) for kind in kinds]
    with disturbed(units, "attention", 100 * times, seed=times) as counts:
        right = all([case.same(units) for case in cases])
    check(counts, {
        "aborts": 130 * times, "aborts_with_reads": 10 * times, "aborts_with_read_left": 4 * times,
        "aborts_with_write_left": 6 * times, "resets": 60 * times, "resets_with_reads": 3 * times,
        "foreign": 50 * times, "power_ups": 6 * times,
    })  # fmt: skip
    assert right and len(counts.missing(1, ATTENTION_STATES)) <= (8 if times == 1 else 1)


def down(units: Any) -> bool:
    """h = FP16(A*x)"""
    slots = Slots([adapters.blocks_of_a(1, 300, (9, 4), normal), adapters.parts_of_b(1, 9, 1)],
                  [0, -1, 0, 1])  # fmt: skip
    cases = [Down(normal(k, 3, k), slots) for k in (300, 400)]
    return all([same_down(units, case) for case in cases])


def up(units: Any) -> bool:
    """Arrays of both kinds, and what rows' adapters add."""
    slots = Slots([adapters.parts_of_b(2, 70, 2), plain_up(70, 16)], [0, 1, -1], columns=6000)
    cases = (adapters.fp16(100, 70, 3), int8.Matmul(128, 40, 2, 32), adapters.fp16(31, 70, 2),
             adapters.W4A16(128, 70, 1, 128))  # fmt: skip
    return all([same_up(units, case, slots) for case in cases])


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("family", "states", "most"), [(down, DOWN_STATES, 1), (up, UP_STATES, 2)])
def test_adapters(
    units: Any, family: Callable[[Any], bool], states: tuple[int, ...], most: int, times: int
) -> None:
    with disturbed(units, "adapter", (160 if family is down else 80) * times, seed=times) as counts:
        right = family(units)
    least = {
        "aborts": 80, "aborts_announced": 10, "aborts_with_reads": 6, "aborts_with_read_left": 2,
        "aborts_with_write_left": 1, "resets": 30, "resets_with_reads": 3, "announces": 80,
        "foreign": 15, "power_ups": 5,
    }  # fmt: skip
    check(counts, {name: n * most * times for name, n in least.items()})
    assert right and not [s for s in states if counts.aborts_in[s] < times]


@pytest.mark.parametrize("unit", ["fp16", "int8", "vfu", "attention", "adapter"])
def test_registers_begin_with_any_bits(units: Any, unit: str) -> None:
    """The state before the first reset is not the same each time."""
    runs = {
        "fp16": fp16, "int8": eight_bit, "vfu": embedding,
        "attention": lambda u: Attention("fp16", 8, (3, 0, 0), 1, (1, 1, 1)).same(u),
        "adapter": down,
    }  # fmt: skip
    with disturbed(units, unit, 80, seed=2) as counts:
        assert runs[unit](units)
    check(counts, {"power_ups": 2})
    assert counts.found["states_at_power_up"].bit_count() >= 2
