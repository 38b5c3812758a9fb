"""Mixtures of experts (docs/numbers.md, 3.16): the experts that a row chooses, and matmuls whose
weights are those of each row's experts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi, numerics
from lora_host.emu.matrix import pack_columns, pack_rows, segmented_matmul
from lora_host.emu.unit_call import BANK_ONCHIP, UnitCall
from lora_host.emu.weight_blocks import BLOCK_K, BLOCK_N, fp16_weights
from lora_host.numerics import F32

CHOSEN = abi.dtype("chosen")
COLUMNS = 256  # at once


def route(call: UnitCall) -> None:
    """struct lora_chosen of the `extra` largest logits of each row, by ascending expert."""
    c = call.command
    logits = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float32)
    known = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    order = np.argsort(-known, axis=1, kind="stable")[:, : c.extra]
    chosen = np.sort(order, axis=1)
    weights = numerics.exp32(logits - known.max(axis=1, keepdims=True))
    taken = np.take_along_axis(weights, chosen, 1)
    total = np.zeros(len(logits), np.float32)
    for column in (taken if c.op == abi.VEC_ROUTE_CHOSEN else weights).T:
        total = total + column
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.extra, CHOSEN)
    y["weight"], y["expert"] = taken / total[:, None], chosen


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
    if c.weight_type != abi.WEIGHT_FP16:
        raise ValueError(f"experts' weight type {c.weight_type:#x} is unknown")
    combines = bool(c.flags & abi.FLAG_COMBINE)
    chosen = call.rows_view(BANK_ONCHIP, c.chosen_offset, c.chosen_stride, c.chosen, CHOSEN)
    rising = np.diff(chosen["expert"].astype(np.int64), axis=1) > 0
    if (chosen["expert"] >= c.experts).any() or not rising.all():
        raise ValueError(f"rows chose {chosen['expert'].tolist()}: expected ascending numbers of "
                         f"{c.experts} experts")  # fmt: skip
    width, apart = (c.k * c.chosen, c.n) if combines else (c.k, c.n * c.chosen)
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, width, np.float16)
    values = np.zeros((call.row_count, apart), np.float32)
    for expert in np.unique(chosen["expert"]):
        rows, slots = np.nonzero(chosen["expert"] == expert)
        if not combines:
            for start, product in _products(call, int(expert), x[rows]):
                columns = np.arange(start, start + product.shape[1])[None] * c.chosen
                values[rows[:, None], columns + slots[:, None]] = product
            continue
        weight = chosen["weight"][rows, slots][:, None]
        own = x.reshape(call.row_count, c.k, c.chosen)[rows, :, slots]
        for start, product in _products(call, int(expert), own):
            stop = start + product.shape[1]
            values[rows, start:stop] = values[rows, start:stop] + weight * product
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, apart, np.float16)
    call.store_fp16(y, values)


def _products(call: UnitCall, expert: int, x: NDArray[np.float16]) -> Iterator[tuple[int, F32]]:
    """(first column, FP32 [rows, columns]) of rows times the expert's matrix."""
    own, packed = _of_expert(call, expert), pack_rows(x)
    for start in range(0, call.command.n, COLUMNS):
        stop = min(call.command.n, start + COLUMNS)
        yield start, segmented_matmul(packed, pack_columns(fp16_weights(own, start, stop)))


def _of_expert(call: UnitCall, expert: int) -> UnitCall:
    """The call with the fields of a matmul by this expert's matrix."""
    c: Any = call.command
    blocks = -(-c.k // BLOCK_K) * -(-c.n // BLOCK_N)
    found = copy.copy(call)
    found.command = SimpleNamespace(
        first=c.first + expert * -(-blocks // c.merge),
        **{name: getattr(c, name) for name in (
            "bank_first", "bank_count", "merge", "weight_type", "weight_line", "k", "n")},
    )  # fmt: skip
    return found
