"""Locations of a row's keys and values: committed positions by the page table, uncommitted rows in
the scratch pages. Also the attention mask of each row (docs/numbers.md, 3.8 and 6.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import LINE_BYTES, UnitCall, padded
from lora_host.numerics import F32, to_fp16

TILE: int = abi.TILE_POSITIONS


@dataclass(frozen=True)
class Visible:
    """Positions visible to rows of one sequence. Entries are the `committed` positions, then the
    `slots`. `entries` [rows, tiles*32]: entry at each logical position, -1 where a row does not
    see it. `seen` [rows]: logical positions up to the row itself. `first`: the first position that
    a row sees; K and V before its tile are not read."""

    rows: list[int]
    sequence: int
    committed: int
    slots: list[int]
    entries: NDArray[np.int64]
    seen: NDArray[np.int64]
    first: int


def visible_sets(call: UnitCall) -> list[Visible]:
    """The command's rows by sequence. Each sees the committed prefix, its ancestors and itself."""
    by_sequence: dict[int, list[int]] = {}
    step_rows = call.rows()
    for i, row in enumerate(step_rows):
        by_sequence.setdefault(row.sequence, []).append(i)
    return [_visible(call, sequence, rows, step_rows) for sequence, rows in by_sequence.items()]


def _visible(call: UnitCall, sequence: int, rows: list[int], step_rows: list[Any]) -> Visible:
    chains: dict[int, list[int]] = {-1: []}
    paths = [_chain(call, chains, step_rows[i].slot) for i in rows]
    slots = sorted({slot for path in paths for slot in path})
    committed = int(call.state.lengths[sequence])
    index = {slot: committed + i for i, slot in enumerate(slots)}
    tiles = -(-(committed + max(len(path) for path in paths)) // TILE)
    entries = np.full((len(rows), tiles * TILE), -1, np.int64)
    entries[:, :committed] = np.arange(committed)
    seen = np.array([committed + len(path) for path in paths], np.int64)
    firsts = np.maximum(0, seen - window) if (window := int(call.command.window)) else 0 * seen
    for entry_row, path, first in zip(entries, paths, firsts, strict=True):
        entry_row[committed : committed + len(path)] = [index[slot] for slot in path]
        entry_row[:first] = -1
    return Visible(rows, sequence, committed, slots, entries, seen, int(firsts.min()))


def _chain(call: UnitCall, chains: dict[int, list[int]], slot: int) -> list[int]:
    """Slots from the first uncommitted ancestor down to `slot`. ValueError for a cycle."""
    missing: list[int] = []
    while slot not in chains:
        if len(missing) > call.list.max_scratch:
            raise ValueError(f"the parents of slot {missing[0]} form a cycle")
        missing.append(slot)
        slot = call.state.slots[slot].parent
    path = chains[slot]
    for slot in reversed(missing):
        path = [*path, slot]
        chains[slot] = path
    return path


def slots_of_path(call: UnitCall, slot: int) -> list[int]:
    """Slots from the first uncommitted ancestor down to `slot`. ValueError for a cycle."""
    return _chain(call, {-1: []}, slot)


def _block_bytes(call: UnitCall) -> int:
    """Bytes of one block, whole lines: values, then with KV_INT8_HEADS one scale per position."""
    header = call.list
    values = TILE * int(header.head_dim)
    if header.kv_type == abi.KV_FP16:
        return values * 2
    return padded(values) + (2 * TILE if header.kv_type == abi.KV_INT8_HEADS else 0)


def kv_block(call: UnitCall, page: int, head: int, values: bool, plane: int = 0) -> NDArray[Any]:
    """One block as it is stored, FP16 or INT8: K as [head_dim, 32], V as [32, head_dim]."""
    header = call.list
    bank, offset = _block_location(call, page, head, values, plane)
    shape = (TILE, header.head_dim) if values else (header.head_dim, TILE)
    return call.view(bank, offset, shape, np.float16 if header.kv_type == abi.KV_FP16 else np.int8)


def _block_location(
    call: UnitCall, page: int, head: int, values: bool, plane: int = 0
) -> tuple[int, int]:
    """(bank, byte offset) of a block, `plane` planes behind the command's first."""
    header, layer = call.list, call.command.kv_layer + plane
    first_bank, banks, line = header.kv_bank_first, header.kv_bank_count, header.kv_line
    if header.kv_spill_bank_count and page >= header.kv_spill_page:
        first_bank, banks = header.kv_spill_bank_first, header.kv_spill_bank_count
        line, page = header.kv_spill_line, page - header.kv_spill_page
    stride = (header.kv_layers * header.kv_heads * 2) | 1
    j = page * stride + (layer * header.kv_heads + head) * 2 + int(values)
    start = j // banks * _block_bytes(call)
    return first_bank + j % banks, line * LINE_BYTES + start


def _wide_block(call: UnitCall, page: int, head: int, values: bool) -> NDArray[Any]:
    """One block as attention reads it: KV_INT8_HEADS is converted to FP16(value*scale)."""
    block = kv_block(call, page, head, values)
    if call.list.kv_type != abi.KV_INT8_HEADS:
        return block
    bank, offset = _block_location(call, page, head, values)
    scale_offset = offset + padded(block.nbytes)
    scales = call.view(bank, scale_offset, (TILE,), np.float16).astype(np.float32)
    wide = block.astype(np.float32) * (scales[:, None] if values else scales)
    return to_fp16(wide)


def read_kv(call: UnitCall, visible: Visible) -> tuple[F32, F32]:
    """(K [heads, head_dim, entries], V [heads, entries, head_dim]) in FP32; for KV_INT8 the
    integers without scales.

    An additional last entry, all +0, is for masked positions.
    """
    heads, head_dim = call.list.kv_heads, call.list.head_dim
    count = visible.committed + len(visible.slots) + 1
    keys = np.zeros((heads, head_dim, count), np.float32)
    values = np.zeros((heads, count, head_dim), np.float32)
    pages = page_table(call, visible.sequence)
    for head in range(heads):
        for start in range(visible.first // TILE * TILE, visible.committed, TILE):
            end = min(start + TILE, visible.committed)
            page = int(pages[start // TILE])
            keys[head, :, start:end] = _wide_block(call, page, head, False)[:, : end - start]
            values[head, start:end] = _wide_block(call, page, head, True)[: end - start]
        for i, slot in enumerate(visible.slots, visible.committed):
            page, lane = divmod(slot, TILE)
            keys[head, :, i] = _wide_block(call, page, head, False)[:, lane]
            values[head, i] = _wide_block(call, page, head, True)[lane]
    return keys, values


def page_table(call: UnitCall, sequence: int) -> NDArray[np.uint16]:
    header = call.list
    offset = header.table_line * LINE_BYTES + sequence * padded(2 * header.max_tiles)
    table: NDArray[np.uint16] = call.view(header.table_bank, offset, (header.max_tiles,), np.uint16)
    return table
