"""LayerNorm and RMSNorm in two steps: each board sums its own segments, then all boards apply them
(docs/numbers.md, 3.4 and 3.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, NO_BANK, UnitCall
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum

SEGMENTS: int = abi.SEGMENTS
_ONE = np.float32(1)
Sums = tuple[F32, F32, int]  # T, Q [rows] and their number of columns


def _rows(call: UnitCall) -> F32:
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    return x.astype(np.float32)


def _records(call: UnitCall, width: int) -> Any:
    """The sums' records, FP32 [rows, 8, width]."""
    c = call.command
    shape, strides = (call.row_count, SEGMENTS, width), (c.z_stride, 4 * width, 4)
    return np.ndarray(shape, np.float32, call.buffer(BANK_ONCHIP), c.z_offset, strides)


def _owned(call: UnitCall) -> list[tuple[int, int, int]]:
    """(segment of d, first and end local column) of this board's non-empty segments."""
    c = call.command
    owned = []
    for s, (start, end) in enumerate(segment_bounds(c.extra)):
        if start < end and c.first <= start and end <= c.first + c.columns:
            owned.append((s, start - c.first, end - c.first))
    return owned


def ln_sums(call: UnitCall) -> None:
    """Per segment T = sum of x, then Q = sum of (x-m)*(x-m) with m = T/FP32(n)."""
    x, records = _rows(call), _records(call, 2)
    for s, start, end in _owned(call):
        columns = np.ascontiguousarray(x[:, start:end].T)
        total = _sequential(columns)
        mean = total / np.float32(end - start)
        delta = columns - mean
        call.store_fp32(records[:, s, 0], total)
        call.store_fp32(records[:, s, 1], _sequential(delta * delta))


def rms_sums(call: UnitCall) -> None:
    """Per segment S = sum of x*x."""
    x, records = _rows(call), _records(call, 1)
    for s, start, end in _owned(call):
        columns = np.ascontiguousarray(x[:, start:end].T)
        call.store_fp32(records[:, s, 0], _sequential(columns * columns))


def _sequential(columns: F32) -> F32:
    """Sum of [columns, rows] over columns, sequentially from +0."""
    total = np.zeros(columns.shape[1], np.float32)
    for column in columns:
        np.add(total, column, out=total)
    return total


def merge(a: Sums, b: Sums) -> Sums:
    """Combined sums of two adjacent column ranges. An empty one is skipped."""
    t_a, q_a, n_a = a
    t_b, q_b, n_b = b
    if n_a == 0 or n_b == 0:
        return b if n_a == 0 else a
    delta = t_b / np.float32(n_b) - t_a / np.float32(n_a)
    factor = np.float32(n_a * n_b) / np.float32(n_a + n_b)
    q = (q_a + q_b) + (delta * delta) * factor
    return t_a + t_b, q, n_a + n_b


def ln_apply(call: UnitCall) -> None:
    """y = FP16(((x-mean)*r)*gamma + beta), r = 1/sqrt(Q/d + eps)."""
    c = call.command
    records = _records(call, 2)
    level: list[Sums] = [
        (records[:, s, 0], records[:, s, 1], end - start)
        for s, (start, end) in enumerate(segment_bounds(c.extra))
    ]
    while len(level) > 1:
        level = [merge(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    total, squares, _ = level[0]
    mean = (total / np.float32(c.extra))[:, None]
    scaled = (_rows(call) - mean) * _reciprocal_root(call, squares)
    _store(call, scaled * _parameter(call, c.a_bank, c.a_line, 1.0), c.b_bank)


def rms_apply(call: UnitCall) -> None:
    """y = FP16((x*r)*w), r = 1/sqrt(S/d + eps); with ONE_PLUS by 1 + w, r of another numerator."""
    c = call.command
    records = _records(call, 1)
    parts = [
        records[:, s, 0] if start < end else None
        for s, (start, end) in enumerate(segment_bounds(c.extra))
    ]
    scaled = _rows(call) * _reciprocal_root(call, tree_sum(parts), numerator(call))
    _store(call, scaled * gamma_of(call, _parameter(call, c.a_bank, c.a_line, 1.0)), None)


def gamma_of(call: UnitCall, values: F32) -> F32:
    """What an RMSNorm multiplies by: gamma, or 1 + gamma."""
    return np.float32(1) + values if call.command.flags & abi.FLAG_ONE_PLUS else values


def numerator(call: UnitCall) -> np.float32:
    """Of an RMSNorm's r."""
    c = call.command
    return call.fp32(c.b_line) if c.flags & abi.FLAG_ONE_PLUS else np.float32(1)


def _reciprocal_root(call: UnitCall, total: F32, above: np.float32 = _ONE) -> F32:
    c = call.command
    eps = call.fp32(c.scalar)
    root = np.sqrt(total / np.float32(c.extra) + eps)
    reciprocal: F32 = above / root
    return reciprocal[:, None]


def _parameter(call: UnitCall, bank: int, line: int, absent: float) -> Any:
    """gamma or beta of the local columns, FP32; `absent` if the model has none."""
    if bank == NO_BANK:
        return np.float32(absent)
    values = call.view(bank, line * LINE_BYTES, (call.command.columns,), np.float16)
    return values.astype(np.float32)


def _store(call: UnitCall, scaled: F32, beta_bank: int | None) -> None:
    """LayerNorm adds beta, or +0 without beta (which turns -0 into +0). RMSNorm adds nothing."""
    c = call.command
    if beta_bank is not None:
        scaled = scaled + _parameter(call, beta_bank, c.b_line, 0.0)
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.float16)
    call.store_fp16(y, scaled)
