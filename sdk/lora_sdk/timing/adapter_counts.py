"""What adapters make their unit of overlays/rtl do: how often, by name.

A*x: `row`, `adapted`, a row with an adapter; `factor`, of one of the matrices that the matmul
joins; `stripe`, of eight ranks; `cycle`, in which the lanes multiply. What is added to a stripe of
an array's columns, of one row, while the array makes the next: `stripe`; `factor`, a record that is
read again where there are several; `part`, of eight columns; `cycle`."""

from __future__ import annotations

from math import ceil

from lora_sdk.compile.isa import Adapter
from lora_sdk.timing.matmul_counts import ROUND, STRIPE
from lora_sdk.timing.vector_counts import CHUNK, Counts

LANES = 8


def turns(k: int) -> int:
    """Cycles in which the lanes multiply `k` values."""
    units = ceil(k / CHUNK)
    return 8 * k if units == 1 else ROUND * ceil(units / 8)


def down_counts(command: Adapter, rows: int, adapted: int, factors: int, rank: int) -> Counts:
    """Of A*x on `rows` rows, `adapted` of them with an adapter of `rank` for each factor."""
    found = adapted * factors
    stripes = found * ceil(rank / LANES)
    return {
        "command": 1,
        "row": rows,
        "adapted": adapted,
        "factor": found,
        "stripe": stripes,
        "cycle": stripes * (turns(command.k) + STRIPE),
    }


def up_counts(columns: int, factors: int, rank: int) -> Counts:
    """Of scale*(B*h) on one stripe of `columns` columns of one row."""
    parts = ceil(columns / LANES)
    return {
        "stripe": 1,
        "factor": factors if factors > 1 else 0,
        "part": parts,
        "cycle": parts * (turns(rank) + STRIPE),
    }
