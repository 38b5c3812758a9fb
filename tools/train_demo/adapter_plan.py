"""Sizes of an adapter's training; apart from the training itself, which needs PEFT."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AdapterPlan:
    """One adapter; `blocks` is 0 for a plain LoRA.

    Rank 16 in 8 blocks has about as many parameters as rank 8 without blocks.
    """

    rank: int = 8
    blocks: int = 0
    sequences: int = 4
    length: int = 256
    rate: float = 3e-3
    seed: int = 4
