"""Mixtures of experts (docs/numbers.md, 3.16): the experts that a row chooses, and matmuls whose
weights are those of each row's experts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi, numerics
from lora_host.emu.matrix import is_scaled, products
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall, padded
from lora_host.emu.weight_blocks import BLOCK_K, BLOCK_N
from lora_host.numerics import F32

CHOSEN = abi.dtype("chosen")
SCALE_BYTES = abi.dtype("row_scale").itemsize
LEAST_WEIGHTS = np.array([0, 1e-20, 1e-6], np.float32)
"""Added to the sum of a row's weights, by `first`."""
ROWS = -1  # in a bank's place: rows of one expert


def route(call: UnitCall) -> None:
    """struct lora_chosen of the `extra` largest logits of each row, by ascending expert; of some
    groups where `b_line` says so."""
    c = call.command
    logits = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float32)
    known = _known(logits)
    choice = _in_groups(known, c.b_line, _best) if c.b_line else known
    chosen = _largest(choice, c.extra)
    weights = numerics.exp32(logits - known.max(axis=1, keepdims=True))
    taken = np.take_along_axis(weights, chosen, 1)
    total = np.zeros(len(logits), np.float32)
    for column in (taken if c.op == abi.VEC_ROUTE_CHOSEN else weights).T:
        total = total + column
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.extra, CHOSEN)
    found = taken / total[:, None]
    y["weight"], y["expert"] = found * call.fp32(c.scalar) if c.scalar else found, chosen


def route_sigmoid(call: UnitCall) -> None:
    """The same by sigmoids, of which a bias makes the choice: struct lora_vector, ROUTE_SIGMOID."""
    c = call.command
    logits = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float32)
    bias = call.view(c.a_bank, c.a_line * LINE_BYTES, (c.columns,), np.float32)
    with numerics.quiet():
        scores = np.float32(1) / (np.float32(1) + numerics.exp32(-logits))
        choice = _in_groups(_known(scores + bias), c.b_line, _best_two)
        chosen = _largest(choice, c.extra)
        weights = _weights(scores, bias, chosen)
        if c.first:
            total = np.zeros(len(logits), np.float32)
            for column in weights.T:
                total = total + column
            weights = weights / (total + LEAST_WEIGHTS[c.first])[:, None]
        y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.extra, CHOSEN)
        y["weight"], y["expert"] = weights * call.fp32(c.scalar), chosen


def _weights(scores: F32, bias: F32, chosen: NDArray[np.intp]) -> F32:
    """What weights are made of: the bias has no part in them."""
    return np.take_along_axis(scores, chosen, 1)


def _known(values: F32) -> F32:
    """NaN counts as -infinity."""
    return np.where(np.isnan(values), np.float32(-np.inf), values)


def _largest(values: F32, count: int) -> NDArray[np.intp]:
    """The numbers of the `count` largest of each row, ascending; of equal ones the lowest."""
    return np.sort(np.argsort(-values, axis=1, kind="stable")[:, :count], axis=1)


def _best(values: F32) -> F32:
    """The largest of each group [rows, groups, each]."""
    found: F32 = values.max(axis=2)
    return found


def _best_two(values: F32) -> F32:
    """The two largest of each group, added."""
    two = np.sort(values, axis=2)[..., -2:]
    return _known(two[..., 1] + two[..., 0])


def _in_groups(flat: F32, packed: int, best: Callable[[F32], F32]) -> F32:
    """[rows, columns] with NaN where a row does not take the group: `argsort` has it behind
    -infinity. `packed`: the groups and, times 2^16, how many a row takes, of the largest `best`."""
    groups, count = packed & 0xFFFF, packed >> 16
    if groups == 1:
        return flat
    values = flat.reshape(len(flat), groups, -1)
    taken = _largest(best(values), count)
    found = np.full_like(values, np.nan)
    np.put_along_axis(found, taken[..., None], np.take_along_axis(values, taken[..., None], 1), 1)
    return found.reshape(len(values), -1)


def add_gated(call: UnitCall) -> None:
    """y + x/(1 + exp(-z)), z an FP32 value a row."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, 1, np.float32)
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.columns, np.float16)
    with numerics.quiet():
        share = np.float32(1) / (np.float32(1) + numerics.exp32(-z))
        call.store_fp16(y, y.astype(np.float32) + share * x.astype(np.float32))


def experts(call: UnitCall) -> None:
    """All rows of the command, one expert after the other. ValueError: a row names an expert that
    there is not, or experts out of order."""
    c = call.command
    if call.row_count == 0:
        return
    combines = bool(c.flags & abi.FLAG_COMBINE)
    chosen = call.rows_view(BANK_ONCHIP, c.chosen_offset, c.chosen_stride, c.chosen, CHOSEN)
    rising = np.diff(chosen["expert"].astype(np.int64), axis=1) > 0
    if (chosen["expert"] >= c.experts).any() or not rising.all():
        raise ValueError(f"rows chose {chosen['expert'].tolist()}: expected ascending numbers of "
                         f"{c.experts} experts")  # fmt: skip
    apart = c.n if combines else c.n * c.chosen
    values = np.zeros((call.row_count, apart), np.float32)
    for expert in np.unique(chosen["expert"]):
        rows, slots = np.nonzero(chosen["expert"] == expert)
        weight = chosen["weight"][rows, slots][:, None]
        bias = _bias(call, int(expert))
        for start, product in _products(call, int(expert), _rows_of(call, rows, slots)):
            stop = start + product.shape[1]
            product = product if bias is None else product + bias[start:stop]
            if combines:
                values[rows, start:stop] = values[rows, start:stop] + weight * product
            else:
                columns = np.arange(start, stop)[None] * c.chosen
                values[rows[:, None], columns + slots[:, None]] = product
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, apart, np.float16)
    call.store_fp16(y, values)


def _rows_of(call: UnitCall, rows: NDArray[np.intp], slots: NDArray[np.intp]) -> NDArray[np.uint8]:
    """The rows of one expert as a matmul reads them, behind each its own scale, if it has one."""
    c = call.command
    kind, slots_of = np.int8 if is_scaled(call) else np.float16, 1
    if c.flags & abi.FLAG_COMBINE:
        slots_of = c.chosen
    whole = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.k * slots_of, kind)
    x = whole.reshape(call.row_count, c.k, slots_of)
    own = np.ascontiguousarray(x[rows, :, slots if slots_of > 1 else 0]).view(np.uint8)
    found = np.zeros((len(rows), padded(own.shape[1]) + SCALE_BYTES), np.uint8)
    found[:, : own.shape[1]] = own
    if c.flags & abi.FLAG_ROW_SCALES:
        behind = c.x_offset + padded(whole.shape[1])
        scales = call.rows_view(BANK_ONCHIP, behind, c.x_stride, SCALE_BYTES, np.uint8)
        found[:, -SCALE_BYTES:] = scales[rows]
    return found


def _products(call: UnitCall, expert: int, x: NDArray[np.uint8]) -> Iterator[tuple[int, F32]]:
    """(first column, FP32 [rows, columns]) of rows times the expert's matrix."""
    own = _of_expert(call, expert)
    own.command.x_stride = x.shape[1]
    own.take_rows(ROWS, x)
    yield from products(own)


def _scale_bytes(call: UnitCall) -> int:
    """Of one expert's scales, in whole lines."""
    return padded(4 * call.command.n) if is_scaled(call) else 0


def _table_bytes(call: UnitCall) -> int:
    """The same, and of its bias behind."""
    biased = call.command.flags & abi.FLAG_EXPERT_BIAS
    return _scale_bytes(call) + (padded(2 * call.command.n) if biased else 0)


def _bias(call: UnitCall, expert: int) -> F32 | None:
    """FP32 [n] of an expert; None without."""
    c = call.command
    if not c.flags & abi.FLAG_EXPERT_BIAS:
        return None
    at = c.scale_line * LINE_BYTES + expert * _table_bytes(call) + _scale_bytes(call)
    found: F32 = call.view(c.scale_bank, at, (c.n,), np.float16).astype(np.float32)
    return found


def _of_expert(call: UnitCall, expert: int) -> UnitCall:
    """The call with the fields of a matmul by this expert's matrix."""
    c: Any = call.command
    blocks = -(-c.k // BLOCK_K) * -(-c.n // BLOCK_N)
    found = copy.copy(call)
    found.command = SimpleNamespace(
        first=c.first + expert * -(-blocks // c.merge),
        bias_bank=c.scale_bank,
        bias_line=c.scale_line + expert * _table_bytes(call) // LINE_BYTES,
        x_bank=ROWS,
        x_offset=0,
        **{name: getattr(c, name) for name in (
            "flags", "bank_first", "bank_count", "merge", "weight_type", "weight_line", "k", "n")},
    )  # fmt: skip
    return found
