"""What an attention command makes the unit of overlays/rtl do: how often, by name.

Of a row and head it makes passes over its lanes: K of the committed tiles and of the scratch pages
on the path, then V of the tiles and of each position of the path. `pass`: one of them; `step`:
their cycles, of FP16 lanes eight an element of K or a position of V, of integers a line of K or 64
columns of V; `block`: one that is read or of which a position is read; `table`: a line of the page
table. `column`: of the last head, which nothing hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from lora_host import abi
from lora_lab.timing.card_step import CardRow
from lora_lab.timing.vector_counts import CHUNK, Counts
from lora_sdk.compile.isa import Attention

if TYPE_CHECKING:
    from lora_sdk.plan.kv import KvLayout

TABLE_TILES = 32  # of a line of the page table
SLOTS = 8  # sums that take turns in an FP16 lane
CHUNK_TILES = 128  # docs/numbers.md, 3.8
INTEGERS = 64  # products a cycle


def attention_counts(kv: KvLayout, command: Attention, rows: Sequence[CardRow]) -> Counts:
    """Of a command on these rows."""
    found: Counter[str] = Counter(command=1, row=len(rows))
    for row in rows:
        found["path"] += len(row.path)
        found["column"] += command.head_dim
        for name, count in _of_head(kv, command, row).items():
            found[name] += command.q_heads * count
        begins = _first(command, row)
        if row.committed > begins:
            last = (row.committed - 1) // abi.TILE_POSITIONS
            found["table"] += last // TABLE_TILES - begins // abi.TILE_POSITIONS // TABLE_TILES + 1
    return {name: float(count) for name, count in found.items()}


def busiest(command: Attention, units: int) -> Attention:
    """What the unit does that has most heads, where KV heads go to so many round-robin."""
    own = ceil(ceil(command.q_heads / command.group) / units)
    return replace(command, q_heads=min(command.q_heads, own * command.group))


def _first(command: Attention, row: CardRow) -> int:
    """The first position that is seen."""
    return max(0, row.visible - command.window) if command.window else 0


def _of_head(kv: KvLayout, command: Attention, row: CardRow) -> dict[str, int]:
    tile, first = abi.TILE_POSITIONS, _first(command, row)
    static, head_dim = kv.format.static, command.head_dim
    side = 1 if static else side_by_side(head_dim)
    whole = ceil(row.committed / tile) - first // tile if row.committed > first else 0
    seen = row.path[max(0, first - row.committed) :]
    pages = {slot // tile for slot in row.path}
    scores = ceil(whole / side) + len(pages)
    sums = list(_rows_of_sums(row, first, side))
    a_score = head_dim // 2 if static else SLOTS * min(CHUNK, head_dim)
    a_row = ceil(head_dim / INTEGERS) if static else SLOTS
    return {
        "head": 1,
        "pass": scores + len(sums) + len(seen),
        "step": scores * a_score + (sum(sums) + len(seen)) * a_row,
        "block": 2 * whole + len(pages) + len(seen),
    }


def side_by_side(head_dim: int) -> int:
    """Tiles of a pass of FP16 lanes: a power of two."""
    columns = ceil(head_dim / CHUNK)
    return 1 << (SLOTS // columns).bit_length() - 1


def _rows_of_sums(row: CardRow, first: int, side: int) -> Iterator[int]:
    """Of each pass over V of committed tiles, the positions that follow each other."""
    tile, beside = abi.TILE_POSITIONS, 0
    for number in range(first // tile, ceil(row.committed / tile)):
        base, ends = number * tile, min((number + 1) * tile, row.committed)
        if ends - max(base, first) < tile:
            yield ends - max(base, first)
            continue
        beside += 1
        chunk_ends = number % CHUNK_TILES == CHUNK_TILES - 1
        if beside == side or chunk_ends or ends + tile > row.committed:
            yield tile
            beside = 0
