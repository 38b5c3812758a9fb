"""Cycles of gathers on simulated Routers, with memory and links that take a line a cycle and 75
cycles on a cable. `python -m tests.rtl.router_cycles` measures shapes and prints what they cost by
counts (`gather` in sdk/lora_lab/timing/data/sim-card.yaml)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lora_lab.timing.gather_counts import gather_counts
from lora_lab.timing.vector_counts import Counts
from lora_sdk.plan.collectives import Collective
from tests.rtl.bench_rig import build, counted, run

COLUMNS = 4096
CABLE = 75
# Boards of a ring, rows of 4,096 FP16 columns: cycles (docs/rtl.md, held by test_router.py).
CYCLES = {(2, 1): 461, (4, 1): 458, (8, 1): 591, (4, 16): 3421, (4, 64): 12907}
# What costs by counts are fitted to: none of those above; of few columns one row alone, as sums
# of norms are.
FITTED = [
    (boards, rows, columns)
    for boards in (2, 4, 8)
    for rows in (1, 3, 8, 16, 64)
    for columns in (64, 192, 512, 1024, 2048)
    if boards * rows * columns <= 1 << 20 and (rows == 1 or columns >= 512)
]


def measured(bench: Path, boards: int, rows: int, columns: int = COLUMNS) -> int:
    """Cycles from start to result, all boards started together, long after they were told."""
    found: int = counted(run(bench, "measure", boards, rows, columns, CABLE))["cycles"]
    return found


def counts(boards: int, rows: int, columns: int = COLUMNS) -> Counts:
    """For the timing model."""
    return gather_counts(Collective("", columns, 32, 32, 2), boards, True, rows)


def all_measured() -> Iterator[tuple[Counts, int]]:
    """Of the shapes that costs are fitted to."""
    bench = build("router", OPT="-O1")
    for shape in FITTED:
        yield counts(*shape), measured(bench, *shape)


if __name__ == "__main__":
    from tests.rtl.card_units import Sample, fitted, text

    found = [Sample("gather", of, 0, cycles, "") for of, cycles in all_measured()]
    print(text({"gather": fitted(found)}))
