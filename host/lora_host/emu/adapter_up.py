"""(acc + bias) + scale*(B*h): adapters' contribution to a matmul before rounding (docs/numbers.md,
7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_host.emu.adapter_slot import Slot, h_columns, h_rows, slots_of_rows
from lora_host.emu.unit_call import UnitCall
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum

BLOCK_N = abi.BLOCK_N


def add_adapters(call: UnitCall, total: F32, start: int) -> None:
    """Adds to `total` in place; it holds the columns from `start` on of all rows."""
    h = h_rows(call)
    for slot, rows in slots_of_rows(call):
        _, up = slot.factors(call.command.adapter - 1)
        for factor in up:
            first = int(factor["first"])
            low, high = max(first, start), min(first + int(factor["count"]), start + total.shape[1])
            if low >= high:
                continue
            chosen = h[rows][:, h_columns(factor)].astype(np.float32)
            update = _matmul(slot, factor, chosen, low, high)
            scale = call.fp32(int(factor["scale"]))
            total[rows, low - start : high - start] += scale * update


def _matmul(slot: Slot, factor: Any, h: F32, low: int, high: int) -> F32:
    """FP32 [rows, high-low]: sums along all of the adapter's ranks, absent ranks skipped."""
    left = int(factor["first"]) // BLOCK_N * BLOCK_N
    b = slot.b_values(factor)[:, low - left : high - left].astype(np.float32)
    first, end = int(factor["rank_first"]), int(factor["rank_first"]) + int(factor["rank_count"])
    parts: list[F32 | None] = []
    for start, stop in segment_bounds(int(factor["rank"])):
        total = np.zeros((len(h), high - low), np.float32)
        for j in range(max(start, first), min(stop, end)):
            total += h[:, j - first, None] * b[j - first]
        parts.append(total)
    return tree_sum(parts)
