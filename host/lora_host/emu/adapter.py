"""h = FP16(A*x) of the rows that name an adapter (BD-LoRA, section 3; docs/numbers.md, 7.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host.emu.adapter_slot import Slot, h_columns, h_rows, slots_of_rows
from lora_host.emu.unit_call import BANK_ONCHIP, UnitCall
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum


def adapter(call: UnitCall) -> None:
    """Runs all rows of the command that name an adapter. The h of other rows is unchanged."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.k, np.float16)
    h = h_rows(call)
    for slot, rows in slots_of_rows(call):
        chosen = x[rows].astype(np.float32)
        down, _ = slot.factors(c.adapter)
        for factor in down:
            columns = h_columns(factor)
            values = np.zeros((call.row_count, len(columns)), np.float32)
            values[rows] = _matmul(slot, factor, chosen, c.k)
            stored = np.empty(values.shape, np.float16)
            call.store_fp16(stored, values)
            h[np.array(rows)[:, None], columns] = stored[rows]


def _matmul(slot: Slot, factor: Any, x: F32, k: int) -> F32:
    """FP32 [rows, ranks]: sums along K in the dense matrix's segments, absent columns skipped."""
    a = slot.a_values(factor).astype(np.float32)
    first, end = int(factor["first"]), int(factor["first"]) + int(factor["count"])
    parts: list[F32 | None] = []
    for start, stop in segment_bounds(k):
        total = np.zeros((len(x), a.shape[1]), np.float32)
        for column in range(max(start, first), min(stop, end)):
            total += x[:, column, None] * a[column - first]
        parts.append(total)
    return tree_sum(parts)
