"""Cost that one adapter adds to a matmul on each board, for the three ways to shard it.

All shard B by the board's columns. They differ in A (BD-LoRA, section 3):
- nfs: the whole A on every board.
- s: A sharded by rank. h, with the ranks of all modules, is gathered before B.
- bd: one block per board. B of q, k, v, gate and up is block-diagonal, so a board needs only the
  ranks of its block. A of o and down is block-diagonal and applied whole. There is no collective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lora_host import abi
from lora_host.errors import RequestError

MODES = ("bd", "s", "nfs")
ADAPTER_BYTES = 2  # adapters and h are FP16 for any weight format of the design


@dataclass(frozen=True)
class AdapterUse:
    """An adapter of `rank` on all seven projections of every block (six without a gate), used by
    every row of a step. RequestError: rank or mode out of range."""

    rank: int
    mode: str = "bd"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise RequestError(f"adapter mode {self.mode!r}; expected one of {', '.join(MODES)}")
        if not 1 <= self.rank <= abi.MAX_ADAPTER_RANK:
            raise RequestError(
                f"adapter rank {self.rank} is out of range: 1 to {abi.MAX_ADAPTER_RANK}"
            )

    def check(self, boards: int) -> None:
        """RequestError: the rank does not give a block-diagonal adapter one block per board."""
        if self.mode == "bd" and self.rank % boards:
            raise RequestError(
                f"adapter rank {self.rank} is not a multiple of {boards} boards, but a block-"
                "diagonal one has one block per board; use another rank, or --adapter-mode s or nfs"
            )

    def down_ranks(self, boards: int) -> int:
        """Values of A per input of a module on one board. A block-diagonal A has the same."""
        return self.rank if self.mode == "nfs" else math.ceil(self.rank / boards)

    def up_ranks(self, boards: int, blocked_b: bool) -> int:
        """Values of B per column of a board. `blocked_b`: a module with block-diagonal B."""
        return self.rank // boards if self.mode == "bd" and blocked_b else self.rank

    def gathered(self, boards: int, modules: int) -> int:
        """Values of h per row that the adapter's extra collective gathers; 0: there is none."""
        return modules * self.rank if self.mode == "s" and boards > 1 else 0
