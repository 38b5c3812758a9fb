"""What the DMA unit of overlays/rtl does: how often, by name.

`head`: of K and V; `piece`: bytes that lie in one line where they come from and in one where they
go; `operation`, `position`, `run` of a commit: KV operations, positions of their paths, and
positions of one page that go together."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from lora_host import abi
from lora_lab.timing.vector_counts import Counts
from lora_sdk.compile.isa import KvCommit, KvStore, MoveRows

if TYPE_CHECKING:
    from lora_sdk.plan.kv import KvLayout


def head_pieces(kv: KvLayout) -> int:
    """Pieces of K and V of one position and head: K is stored by columns, V by rows."""
    values = ceil(kv.head_dim * kv.format.element_bytes / abi.LINE_BYTES)
    return kv.head_dim + values + 2 * kv.format.by_head


def store_counts(kv: KvLayout, command: KvStore, rows: int) -> Counts:
    """Of K and V of these rows."""
    heads = rows * command.kv_heads
    return {"command": 1, "row": rows, "head": heads, "piece": heads * head_pieces(kv)}


def commit_counts(kv: KvLayout, command: KvCommit, commits: Sequence[Sequence[int]]) -> Counts:
    """Of a header's commits, slots by operation."""
    runs = sum(_runs(path) for path in commits)
    heads = runs * (command.layers or kv.layers) * kv.heads
    return {
        "command": 1,
        "operation": len(commits),
        "position": sum(map(len, commits)),
        "run": runs,
        "head": heads,
        "piece": heads * head_pieces(kv),
    }


def _runs(path: Sequence[int]) -> int:
    """Positions that go together: slots that follow each other in a page."""
    return sum(
        before is None or slot != before + 1 or slot % abi.TILE_POSITIONS == 0
        for before, slot in zip([None, *path], path, strict=False)
    )


def move_counts(command: MoveRows, rows: int) -> Counts:
    """Of rows."""
    return {"command": 1, "row": rows, "piece": rows * ceil(command.bytes / abi.LINE_BYTES)}
