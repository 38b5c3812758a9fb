# SPDX-License-Identifier: Apache-2.0
"""The vector unit with pipes (overlays/rtl/vfu/vector_pipes.sv) against the NumPy model, byte for
byte: what its programs are held to, rows of every length, aborts at any cycle, and that commands
are the pipes' where rows begin at lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from lora_host.numerics import coefficients
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.pipe_counts import on_pipes, pipe_counts
from lora_sdk.compile.isa import Vector
from tests.rtl import test_disturbed_units as disturbances
from tests.rtl import test_vector_folds as folds
from tests.rtl import test_vector_unit as programmed
from tests.rtl.disturbed_rig import disturbed
from tests.rtl.test_fp16_matmul import any_bits, normal
from tests.rtl.test_vector_unit import EVERY, sums
from tests.rtl.vector_rig import X, Y, Z, bits, run, same
from tests.rtl_rig import ROOT, SOURCES, build, first_then_long, mistaken, padded, units_runner
from tests.unit.kernel_rig import ONCHIP, TABLES

pytestmark = pytest.mark.rtl

WIDTHS = [16, pytest.param(8, marks=pytest.mark.long)]  # cards with channels have 16
PIPE_STATES = range(17, 23)  # of vector_pipes.sv, behind the programmed unit's; 0 is not told apart
ROPE = {"a_bank": TABLES, "a_line": 10}


@pytest.fixture(scope="module", params=WIDTHS)
def pipes(request: pytest.FixtureRequest) -> Any:
    return built(request.param)


def built(columns: int) -> Any:
    folder = ROOT / "build" / "rtl" / f"vector_pipes_{columns}"
    return build(folder, unit="vfu", pipes=columns)


def angles(head_dim: int, rows: int = 11) -> tuple[tuple[int, int, np.ndarray], ...]:
    """Tables of a rotation, of any FP32."""
    table = np.zeros((rows, padded(4 * head_dim) // 4), np.float32)
    table[:, :head_dim] = np.random.default_rng(head_dim).standard_normal((rows, head_dim))
    return ((TABLES, 640, table),)


@pytest.mark.parametrize("name", programmed.BINARY)
def test_binary_operations(pipes: Any, name: str) -> None:
    programmed.test_binary_operations(pipes, name)


def test_silu_alone_on_every_value(pipes: Any) -> None:
    assert same(pipes, abi.VEC_SWIGLU, EVERY, np.ones_like(EVERY))


@pytest.mark.parametrize("inverse", [1.0, 12.5, 0.0, 3e38, np.inf, np.nan, -7.0])
def test_quantizing_every_value(pipes: Any, inverse: float) -> None:
    programmed.test_quantizing_every_value(pipes, inverse)


@pytest.mark.parametrize("columns", [1, 31, 33, 96, 257, 1000])
def test_norms(pipes: Any, columns: int) -> None:
    programmed.test_norms(pipes, False, columns)


def test_norms_of_many_sums(pipes: Any) -> None:
    programmed.test_norms_of_many_sums(pipes)


@pytest.mark.parametrize("columns", [1, 17, 32, 33, 65, 100])
def test_lengths_and_selected_rows(pipes: Any, columns: int) -> None:
    programmed.test_lengths_and_selected_rows(pipes, columns)
    x, z = normal(1, 3, columns), normal(2, 3, columns)
    assert same(pipes, abi.VEC_SWIGLU, x, z, (), (2, 5, 8))


def test_rows_from_any_element_on(pipes: Any) -> None:
    """The programmed unit has them, beside rows that begin at lines."""
    for at in (2, 62):
        programmed.test_rows_from_any_element_on(pipes, at)
    for place in ({"x_offset": X + 2}, {"y_offset": Y + 2}, {"z_offset": Z + 2}, {"z_stride": 706}):
        for op in (abi.VEC_RESIDUAL, abi.VEC_SWIGLU):
            assert same(pipes, op, normal(1, 2, 90), normal(2, 2, 90), **place)


@pytest.mark.parametrize("draw", [folds.finite, folds.anything])
@pytest.mark.parametrize("rows", [1, 5])
def test_sums_of_segments(pipes: Any, draw: folds.Draw, rows: int) -> None:
    """All of a row's, or those that one board has."""
    generator = np.random.default_rng(rows)
    for width in (1, 32, 40, 300, 992, 4000):
        x = draw(generator, (rows, width))
        assert same(pipes, abi.VEC_RMS_SUMS, x, extra=width), width
    for start, columns in ((0, 128), (128, 256), (384, 616), (96, 300), (8, 500)):
        x = draw(generator, (rows, columns))
        assert same(pipes, abi.VEC_RMS_SUMS, x, extra=1000, first=start), start


@pytest.mark.parametrize("draw", [folds.finite, folds.anything])
def test_argmax(pipes: Any, draw: folds.Draw) -> None:
    """Equal values, zeros of both signs and NaN too, in rows from a line on and, by program, from
    elsewhere."""
    generator = np.random.default_rng(3)
    for rows, width in ((1, 1), (3, 15), (2, 16), (2, 17), (3, 250), (1, 4000)):
        x = folds.argmax(generator, draw, rows, width).x
        few = generator.choice(np.array([-0.0, 0.0, 1.0], np.float32), x.shape)
        for values in (x, few):
            for at in ({}, {"y_offset": Z + 24, "y_stride": 8}, {"x_offset": Y + 4}):
                place = {"x_offset": Y, "y_offset": Z, "first": 1000, **at}
                assert same(pipes, abi.VEC_ARGMAX, values, **place), (rows, width, at)


def test_equal_maxima_and_nan(pipes: Any) -> None:
    folds.test_equal_maxima_and_nan(pipes)
    folds.test_no_columns(pipes)


@pytest.mark.parametrize("head_dim", [64, 128, 192, 96])
def test_rotations(pipes: Any, head_dim: int) -> None:
    generator, table = np.random.default_rng(head_dim), angles(head_dim)
    for heads, draw in ((1, folds.finite), (5, folds.anything), (9, folds.finite)):
        x = draw(generator, (3, heads * head_dim))
        assert same(pipes, abi.VEC_ROPE, x, None, table, (0, 2, 3), extra=head_dim, **ROPE)


def test_memory_that_is_slow(pipes: Any) -> None:
    """More lines than are read ahead, in place too."""
    x, z, wide = normal(1, 2, 2000), normal(2, 2, 2000), normal(3, 2, 4 * 128)
    place = {"y_bank": ONCHIP, "y_offset": X, "y_stride": padded(8000) + 64}
    norm = {"extra": 2000, "scalar": bits(1e-5), **ROPE}
    try:
        for latency, busy in ((1, 0), (3, 0), (60, 100), (31, 0)):
            pipes.lora_rtl_memory(latency, busy)
            assert same(pipes, abi.VEC_RESIDUAL, x, z, **place)
            assert same(pipes, abi.VEC_SWIGLU, x, z)
            assert same(pipes, abi.VEC_QUANTIZE, x, scalar=bits(20))
            assert same(pipes, abi.VEC_RMS_SUMS, x, extra=2000)
            ids = np.arange(4200, dtype=np.float32).reshape(2, 2100) % 977
            assert same(pipes, abi.VEC_ARGMAX, ids, x_offset=Y, y_offset=Z)
            gamma = ((TABLES, 640, normal(4, 2000)),)
            assert same(pipes, abi.VEC_RMS_APPLY, x, sums(3, 2, 2000, False), gamma, **norm)
            assert same(pipes, abi.VEC_ROPE, wide, None, angles(128), extra=128, **ROPE)
    finally:
        pipes.lora_rtl_memory(1, 0)


def cycles(units: Any, op: int, *arguments: Any, **fields: Any) -> int:
    before = rtl.simulated_work(units).vector_cycles
    assert run(units_runner(units), op, *arguments, **fields)[1].status == abi.OK
    return rtl.simulated_work(units).vector_cycles - before


def test_what_pipes_take(pipes: Any) -> None:
    """By cycles: a row of 2,048 columns takes the programmed unit 3,600 and more."""
    x, z = normal(1, 1, 2048), normal(2, 1, 2048)
    gamma, norm = ((TABLES, 640, x[0]),), {"extra": 2048, "scalar": bits(1e-5), **ROPE}
    commands: list[tuple[int, tuple[Any, ...], dict[str, Any]]] = [
        (abi.VEC_RESIDUAL, (x, z), {}),
        (abi.VEC_SWIGLU, (x, z), {}),
        (abi.VEC_QUANTIZE, (x,), {"scalar": bits(20)}),
        (abi.VEC_RMS_APPLY, (x, sums(1, 1, 2048, False), gamma), norm),
        (abi.VEC_RMS_SUMS, (x,), {"extra": 2048}),
        (abi.VEC_ARGMAX, (x.astype(np.float32),), {"x_offset": Y, "y_offset": Z}),
        (abi.VEC_ROPE, (x, None, angles(128)), {"extra": 128, **ROPE}),
    ]
    cycles(pipes, abi.VEC_RELU, x)
    for op, arguments, fields in commands:
        assert cycles(pipes, op, *arguments, **fields) < 1500, op
    assert cycles(pipes, abi.VEC_RESIDUAL, x, z, x_offset=X + 2) > 3600


def pipe_commands(units: Any) -> bool:
    """Of every kind, with other vectors between them."""
    x, z, wide = any_bits(1, 2, 300), any_bits(2, 2, 300), any_bits(3, 2, 256)
    norm = {"extra": 300, "scalar": bits(1e-5), **ROPE}
    return all([
        same(units, abi.VEC_SWIGLU, x, z), same(units, abi.VEC_RELU, x),
        same(units, abi.VEC_QUANTIZE, x, scalar=bits(12.5)),
        same(units, abi.VEC_RMS_SUMS, normal(1, 2, 300), extra=300),
        same(units, abi.VEC_RMS_APPLY, x, sums(1, 2, 300, False), **norm),
        same(units, abi.VEC_RESIDUAL, x, z),
        same(units, abi.VEC_ROPE, wide, None, angles(128), extra=128, **ROPE),
        same(units, abi.VEC_ARGMAX, folds.singles(np.random.default_rng(4), folds.finite, (2, 300)),
             x_offset=Y, y_offset=Z),
    ])  # fmt: skip


@pytest.mark.parametrize("family", [pipe_commands, disturbances.elements])
def test_aborts_at_any_cycle(pipes: Any, family: Callable[[Any], bool]) -> None:
    with disturbed(pipes, "vfu", 60) as counts:
        right = family(pipes)
    disturbances.check(counts, {"aborts": 150, "aborts_with_reads": 25, "resets": 60})
    assert right
    if family is pipe_commands:
        assert not [s for s in PIPE_STATES if counts.aborts_in[s] == 0]


def test_constants_are_those_of_the_kernels() -> None:
    text = (SOURCES / "vfu" / "pipe_types.sv").read_text()
    names = ("LOG2E", "LN2_HI", "LN2_LO", "MIN", "MAX")
    found = [re.search(rf"EXP_{name} = 32'h(\w+);", text) for name in names]
    single = [int(one[1], 16) for one in found if one]
    listed = re.search(r"EXP_C = \{([^}]*)\}", text)
    assert listed
    single += [int(c, 16) for c in re.findall(r"32'h(\w+)", listed[1])][::-1]
    wanted = [bits(float(coefficients(name)[0])) for name in
              ("log2e", "ln2_hi", "ln2_lo", "exp_min", "exp_max")]  # fmt: skip
    assert single == wanted + [bits(float(c)) for c in coefficients("exp_c")]


# What a command of the pipes takes more than a shorter one, as the time model has it.
LONGER: dict[str, Callable[[int], dict[str, Any]]] = {
    "residual": lambda columns: {},
    "swiglu": lambda columns: {},
    "quantize": lambda columns: {"scalar": bits(3.0)},
    "rms_sums": lambda columns: {"extra": columns},
    "rms_apply": lambda columns: {"extra": columns, "scalar": bits(1e-5)},
    "rope": lambda columns: {"extra": 128, **ROPE},
    "argmax": lambda columns: {"x_offset": Y, "y_offset": Z},
}
LATENCY, PORT = 31, 5  # as tests/rtl/test_unit_cycles.py has them


def modelled(name: str, rows: int, columns: int) -> float:
    op, extra = getattr(abi, f"VEC_{name.upper()}"), LONGER[name](columns).get("extra", 0)
    command = Vector(what=name, op=op, columns=columns, extra=extra)
    assert on_pipes(2, command)
    return card_costs().cycles(f"{name}_pipes", pipe_counts(command, rows), LATENCY)


@pytest.mark.parametrize("name", LONGER)
@pytest.mark.parametrize("shape", [(1, 512), (2, 512), (3, 1024), (1, 4096)])
def test_cycles_are_those_of_the_time_model(name: str, shape: tuple[int, int]) -> None:
    pipes = built(16)

    def simulated(rows: int, columns: int) -> int:
        x = np.ones((rows, columns), np.float32 if name == "argmax" else np.float16)
        z = np.ones((rows, 8), np.float32) if name.startswith("rms") else x
        op, places = getattr(abi, f"VEC_{name.upper()}"), (angles(128) if name == "rope" else ())
        operands = (x,) if name == "argmax" else (x, z, places)
        return cycles(pipes, op, *operands, **LONGER[name](columns))

    pipes.lora_rtl_memory(LATENCY + PORT, 0)
    took = simulated(*shape) - simulated(1, 128)
    pipes.lora_rtl_memory(1, 0)
    expected = modelled(name, *shape) - modelled(name, 1, 128)
    assert took == pytest.approx(expected, rel=0.03, abs=8)


MISTAKES = {
    "an aborted command is not out of the pipes": (
        "vfu/vector_pipes.sv", ".CLEAR_CYCLES(256)", ".CLEAR_CYCLES(32)"),
    "a quotient without what is below": (
        "fp/normal_quotient.sv", "remainder[STAGES] != 25'd0 || ", ""),
    "sums begin with those of the row before": (
        "vfu/pipe_sums.sv", ".clear(state == ROW)", ".clear(start)"),
    "of equal values the last line's": (
        "vfu/pipe_maximum.sv", "line[LEVELS+1] < best_line", "line[LEVELS+1] > best_line"),
    "zeros that differ by their sign": (
        "vfu/pipe_maximum.sv", "if (value[30:0] == 31'd0) return 32'h80000000;", ""),
    "a carry without its exponent": (
        "fp/square_sum.sv", "exponent <= exponent + 8'(carry);", "exponent <= exponent;"),
    "a square is placed as before the carry": (
        "fp/square_sum.sv", "carry ? moved[24:1] : moved[23:0]", "moved[23:0]"),
    "half a place is rounded up": (
        "fp/square_sum.sv", "half_below && (rest || low[0])", "half_below"),
    "half a place behind a carry": (
        "fp/square_sum.sv", "(half_below || rest || low[1])", "(half_below || low[1])"),
    "lines are read over others": (
        "vfu/pipe_lines.sv", "room[s] = count[s] != 6'(AHEAD)", "room[s] = 1'b1"),
    "the second half's sines are subtracted": (
        "vfu/pipe_column.sv", "right[31] ^ !second_4", "!right[31]"),
    "counted beyond a row's end": (
        "vfu/vector_pipes.sv",
        "7'(formed_beat) * 7'(COLUMNS) + 7'(i) < place_formed.length", "1'b1"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    units = build(tmp_path / "build", mistaken(tmp_path, *MISTAKES[name]), unit="vfu", pipes=8)
    x, z = normal(1, 2, 2000), normal(2, 2, 2000)
    x[0, -1] = z[1, -1] = np.inf
    uneven = folds.finite(np.random.default_rng(6), (8, 4000))
    right = [
        same(units, abi.VEC_SWIGLU, x, z),
        same(units, abi.VEC_RESIDUAL, x[:, :40].copy(), any_bits(2, 2, 40)),
        same(units, abi.VEC_RMS_SUMS, normal(3, 2, 2000), extra=2000),
        same(units, abi.VEC_RMS_SUMS, uneven, extra=4000),
        same(units, abi.VEC_ROPE, normal(4, 1, 256), None, angles(128), extra=128, **ROPE),
    ]
    zeros = np.zeros((2, 70), np.float32)
    zeros[0, ::2] = zeros[1, 1:] = -0.0
    right.append(same(units, abi.VEC_ARGMAX, zeros, x_offset=Y, y_offset=Z))
    with disturbed(units, "vfu", 60) as counts:
        right.append(pipe_commands(units))
    assert not all(right) or counts.error
