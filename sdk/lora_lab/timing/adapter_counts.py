"""What adapters make their unit of overlays/rtl do: how often, by name.

A*x: `row`, `adapted`, a row with an adapter; `factor`, of one of the matrices that the matmul
joins; `cycle`, in which the lanes multiply or ranks are stored. What is added to a stripe of an
array's columns, of one row, while the array makes the next: `stripe`; `rank`, a line of B; where
there are several factors `factor`, a record that is read again, and `rank_again`, of h; `cycle`."""

from __future__ import annotations

from math import ceil

from lora_lab.timing.matmul_counts import ROUND, STRIPE
from lora_lab.timing.vector_counts import CHUNK, Counts
from lora_sdk.compile.isa import Adapter

LANES = 8


def turns(k: int) -> int:
    """Cycles in which the lanes multiply `k` values."""
    units = ceil(k / CHUNK)
    return 8 * k if units == 1 else ROUND * ceil(units / 8)


def down_counts(
    command: Adapter, rows: int, adapted: int, factors: int, rank: int, store: float
) -> Counts:
    """Of A*x on `rows` rows, `adapted` of them with an adapter of `rank` for each factor. A
    stripe's ranks go to memory one by one, `store` cycles each, while the next stripe is made."""
    stripe, stripes = turns(command.k) + STRIPE, ceil(rank / LANES)
    last = rank - (stripes - 1) * LANES
    each = stripe + (stripes - 1) * max(stripe, LANES * store) + last * store
    found = adapted * factors
    return {"command": 1, "row": rows, "adapted": adapted, "factor": found, "cycle": found * each}


def up_counts(columns: int, factors: int, rank: int) -> Counts:
    """Of scale*(B*h) on one stripe of `columns` columns of one row."""
    again = factors > 1
    return {
        "stripe": 1,
        "rank": rank,
        "factor": factors * again,
        "rank_again": rank * again,
        "cycle": ceil(columns / LANES) * (turns(rank) + STRIPE),
    }
