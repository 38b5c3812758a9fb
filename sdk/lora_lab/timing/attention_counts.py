"""What an attention command makes the unit of overlays/rtl do: how often, by name.

It goes row by row and head by head, over tiles of 32 positions of K, then of V. `block`: one that
is read, of `block_line` lines; `score`: products of a block of K, `turn`: their eight cycles a
column of the head; `weigh`: products of a block of V or of one position of a path, `turn` a
position; `move`: a score of the path that goes to its place; `tile_group`: of 32 columns of the
head, whose sums are added tile by tile; `table`: a line of the page table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from lora_host import abi
from lora_lab.timing.card_step import CardRow
from lora_lab.timing.vector_counts import CHUNK, Counts
from lora_sdk.compile.isa import Attention

if TYPE_CHECKING:
    from lora_sdk.plan.kv import KvLayout

TABLE_TILES = 32  # of a line of the page table


def attention_counts(kv: KvLayout, command: Attention, rows: Sequence[CardRow]) -> Counts:
    """Of a command on these rows."""
    found: Counter[str] = Counter(command=1, row=len(rows))
    for row in rows:
        found["path"] += len(row.path)
        for name, count in _of_head(kv, command, row).items():
            found[name] += command.q_heads * count
        begins = _first(command, row)
        if row.committed > begins:
            last = (row.committed - 1) // abi.TILE_POSITIONS
            found["table"] += last // TABLE_TILES - begins // abi.TILE_POSITIONS // TABLE_TILES + 1
    return {name: float(count) for name, count in found.items()}


def _first(command: Attention, row: CardRow) -> int:
    """The first position that is seen."""
    return max(0, row.visible - command.window) if command.window else 0


def _of_head(kv: KvLayout, command: Attention, row: CardRow) -> dict[str, int]:
    tile, first = abi.TILE_POSITIONS, _first(command, row)
    seen = row.path[max(0, first - row.committed) :]
    committed = max(0, row.committed - first)
    tiles = ceil(row.visible / tile) - first // tile
    whole = ceil(row.committed / tile) - first // tile if committed else 0
    groups = ceil(command.head_dim / CHUNK)
    pages = {slot // tile for slot in seen}
    size = command.head_dim * (1 if kv.format.static else 2)
    blocks = whole + len(pages) + whole + _pages_in_turn(seen)
    scores = whole + len(pages)
    return {
        "head": 1,
        "group": groups,
        "q_line": ceil(size / abi.LINE_BYTES),
        "tile": tiles,
        "tile_group": tiles * groups,
        "block": blocks,
        "block_line": blocks * kv.block_lines,
        "score": scores,
        "weigh": whole + len(seen),
        "turn": scores * min(CHUNK, command.head_dim) + committed + len(seen),
        "move": len(seen),
    }


def _pages_in_turn(path: Sequence[int]) -> int:
    """Blocks of V that are read for a path: each page that is another than the last one's."""
    pages = [slot // abi.TILE_POSITIONS for slot in path]
    return sum(page != before for before, page in zip([-1, *pages], pages, strict=False))
