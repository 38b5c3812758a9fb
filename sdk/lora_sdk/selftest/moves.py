"""Cases of the DMA unit, and the moves that bring the operands of other cases on-chip."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_sdk.compile.isa import KvCommit, KvStore, MoveRows
from lora_sdk.kv.header_queue import KvOp

from .bench import (
    COMMITTED,
    HEAD_DIM,
    KV_HEADS,
    PAGES,
    RESULTS,
    ROWS,
    UNTOUCHED,
    Bytes,
    Case,
    Site,
    StepCase,
    Test,
    begin,
)
from .kv import Cache

Array = NDArray[np.generic]
STRIDE = 4096  # bytes between two rows of an operand, on-chip and in the results
SLOT = ROWS * STRIDE  # bytes of an operand


def result_offset(index: int) -> int:
    """Offset of operand `index` in the results."""
    return RESULTS + index * SLOT


def operand(site: Site, index: int, rows: Array, what: str = "result") -> Bytes:
    """Rows of an operand with their strides. The bytes between rows must stay untouched."""
    data = np.full((ROWS, STRIDE), UNTOUCHED, np.uint8)
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(ROWS, -1)
    data[:, : raw.shape[1]] = raw
    return Bytes(site.control, result_offset(index), data.tobytes(), what)


def move_in(site: Site, index: int, bytes: int) -> MoveRows:
    """Move operand `index` from the results to the same index on-chip."""
    return MoveRows(
        what=f"operand {index}", x_bank=site.control, y_bank=abi.BANK_ONCHIP,
        x_offset=result_offset(index), x_stride=STRIDE, y_offset=index * SLOT, y_stride=STRIDE,
        bytes=bytes,
    )  # fmt: skip


def move_out(site: Site, source: int, index: int, bytes: int) -> MoveRows:
    """Move on-chip operand `source` to operand `index` of the results."""
    return MoveRows(
        what="result", x_bank=abi.BANK_ONCHIP, y_bank=site.control,
        x_offset=source * SLOT, x_stride=STRIDE, y_offset=result_offset(index), y_stride=STRIDE,
        bytes=bytes,
    )  # fmt: skip


def _move(site: Site) -> Case:
    rows = site.random().integers(0, 256, (ROWS, 1000), np.uint8)
    commands = (move_in(site, 0, 1000), move_out(site, 0, 1, 1000))
    step = StepCase((operand(site, 1, rows, "moved rows"),), kv_ops=begin())
    return Case(commands, (operand(site, 0, rows),), (step,))


def _store_and_commit(site: Site) -> Case:
    """Store K and V of all rows in their slots, then commit three of them to their positions."""
    width = KV_HEADS * HEAD_DIM
    k, v = site.half((ROWS, width), 1.0, 1), site.half((ROWS, width), 1.0, 2)
    cache = Cache(site, site.random(3).integers(0, 2**15, (PAGES, KV_HEADS, 2, 32 * HEAD_DIM)))
    before = cache.blocks()
    for row in range(ROWS):
        cache.put(row // 32, row % 32, k[row], v[row])
    stored = cache.blocks("KV block after the store")
    for row in range(3):
        position = COMMITTED + row
        cache.put({0: 3, 1: 2}[position // 32], position % 32, k[row], v[row])
    committed = cache.blocks("KV block after the commit")
    commands = (
        KvCommit(what="commit"),
        move_in(site, 0, 2 * width),
        move_in(site, 1, 2 * width),
        KvStore(
            what="store", head_dim=HEAD_DIM, kv_layer=0, kv_heads=KV_HEADS, k_offset=0,
            v_offset=SLOT, stride=STRIDE,
        ),
    )  # fmt: skip
    commit = KvOp.commit(0, COMMITTED, 0, 3)
    steps = (
        StepCase(stored, kv_ops=begin()),
        StepCase(committed, rows=0, kv_ops=(commit,), path=(0, 1, 2)),
    )
    placed = (operand(site, 0, k), operand(site, 1, v), *before)
    return Case(commands, placed, steps)


TESTS = (
    Test("DMA", "row moves", _move),
    Test("DMA", "KV store and commit", _store_and_commit),
)
