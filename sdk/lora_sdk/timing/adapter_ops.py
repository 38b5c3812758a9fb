"""What one adapter adds to a product on each board, in the three ways to shard it.

All hold B by the board's own columns; they differ in A (BD-LoRA, section 3):
- nfs: A whole on every board;
- s: A sharded by rank, so that h, all modules' ranks, is gathered before B;
- bd: a block for each board. B of q, k, v, gate and up is block-diagonal, so that a board needs
  the ranks of its own block alone; A of o and down is, and is applied whole. Neither has a
  collective."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lora_host import abi
from lora_host.errors import RequestError

MODES = ("bd", "s", "nfs")
ADAPTER_BYTES = 2  # adapters and h are FP16, whatever the design's weights are


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
        """RequestError: a block-diagonal adapter has no block for each of so many boards."""
        if self.mode == "bd" and self.rank % boards:
            raise RequestError(
                f"adapter rank {self.rank} is no multiple of {boards} boards, and a block-diagonal "
                "adapter has a block for each; take another rank, or --adapter-mode s or nfs"
            )

    def down_ranks(self, boards: int) -> int:
        """Values of A for each input of a module on one board; a block-diagonal A has as many."""
        return self.rank if self.mode == "nfs" else math.ceil(self.rank / boards)

    def up_ranks(self, boards: int, blocked_b: bool) -> int:
        """Values of B for each of a board's columns; `blocked_b`: a module of the bd_b kind."""
        return self.rank // boards if self.mode == "bd" and blocked_b else self.rank

    def gathered(self, boards: int, modules: int) -> int:
        """Values of h a row that a product's further collective gathers; 0: there is none."""
        return modules * self.rank if self.mode == "s" and boards > 1 else 0
