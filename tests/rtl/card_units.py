"""What a card's units take, each alone: lists of models of one layer with a fence behind each
command, at shapes that no step of tests/rtl/card_cases.py has. `python -m tests.rtl.card_units`
measures and prints the costs of sdk/lora_lab/timing/data/sim-card.yaml."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from lora_lab.timing.card_costs import CONTROL
from lora_lab.timing.card_time import besides_counts
from lora_lab.timing.matmul_counts import Arrays
from lora_lab.timing.unit_counts import UPDATE, counting, unit_counts, update
from lora_lab.timing.vector_counts import Counts
from lora_sdk.compile import isa
from tests.rtl.card_build import NARROW
from tests.rtl.card_steps import Request, Step, card_step, chain, gpt2, llama
from tests.rtl.step_cycles import Measured, Run, measure

LANES, ROWS = NARROW, 1  # of the cards
# Of a tile of the INT8 array from its scales' read to its last result, besides lines and passes: by
# K of 128 and 256, of the array alone, and the port's 5 cycles of the card.
TILE = {"w8a8": (64, 1), "w4a8": (111, 1)}
FILL = (17.5, 1)  # where K is 384 the array waits for a side of its buffer
STORE = (8, 1)  # where ranks of h are stored the adapters' unit waits for each
LATENCIES = (8, 31)
TREE = (-1, 0, 0)
STEPS = (Step(20), Step(70, TREE, sampled=2))
REQUESTS = {
    "commits": Request(llama(64, 4, 2, 16, 96), (Step(34), Step(6, chain(2), commits=3))),
    "odd": Request(llama(144, 3, 1, 48, 200), STEPS),
    "int8": Request(llama(160, 5, 5, 32, 224), STEPS, "w8a8"),
    "int4": Request(llama(128, 4, 2, 64, 384), STEPS, "w4a8"),
    "norms": Request(gpt2(96, 3), STEPS),
    "dynamic": Request(llama(96, 4, 2, 32, 160), STEPS, "w8a8_dynamic"),
    "adapter": Request(llama(64, 2, 2, 32, 160), (Step(3, TREE, adapted=2),), rank=12),
    "ordered": Request(llama(128, 4, 1, 32, 256), STEPS, "w4a8_order"),
    "four_bit": Request(llama(192, 2, 1, 96, 96), STEPS, "w4a16"),
    "two_rounds": Request(llama(320, 2, 2, 32, 64), (Step(130),)),
    "scaled_heads": Request(llama(96, 2, 1, 64, 416), STEPS, "w8a8_heads"),
    "long_heads": Request(gpt2(288, 2), (Step(40, (-1, 0)),)),
    "cache_by_heads": Request(llama(64, 4, 2, 16, 64), (Step(40), Step(62, chain(4))), "kv_heads"),
    "int8_cache": Request(llama(96, 2, 1, 64, 64), (Step(40), Step(62, chain(4))), "kv_int8"),
    "large": Request(
        llama(1024, 8, 4, 128, 2304), (Step(40), Step(6, chain(2), commits=3)), "w4a8_wide"
    ),
    "more_ranks": Request(llama(160, 2, 1, 48, 64), (Step(5, adapted=1),), rank=24),
}
# At the second latency alone: their operations have the other one from shapes above.
ONCE = {"two_rounds", "long_heads", "cache_by_heads", "int8_cache", "more_ranks"}
# By structure (docs/rtl.md); the rest is fitted.
KNOWN = {"cycle": 1.0, "x_line": 1.0, "step": 1.0}


@dataclass(frozen=True)
class Sample:
    """A command, or a part of one, that took `cycles` at a latency."""

    kind: str
    counts: Counts
    latency: int
    cycles: float
    of: str


def samples(name: str, request: Request, latency: int, measured: Measured) -> Iterator[Sample]:
    """All commands, and what control takes besides, of a request's steps on one board."""
    its = counting(arrays(latency), measured.plan, 0)
    for step, (run,) in zip(request.steps, measured.steps, strict=True):
        rows = card_step(step)
        yield Sample(CONTROL, besides_counts(rows), latency, besides(run), name)
        for number in sorted(run.begins):
            command = measured.lists[0][number]
            cycles = run.ends[number] - run.begins[number]
            found = unit_counts(its, command, rows)
            assert found is not None, command
            if not isinstance(command, isa.Matrix) or not update(its, command, rows):
                yield Sample(*found, latency, cycles, f"{name} {command}")


def arrays(latency: int) -> Arrays:
    """Of the card that is measured."""
    tile = {kind: cycles + reads * latency for kind, (cycles, reads) in TILE.items()}
    return Arrays(LANES, ROWS, FILL[0] + FILL[1] * latency, STORE[0] + STORE[1] * latency, tile)


def besides(run: Run) -> int:
    """Cycles of a run before its first command and after its last."""
    return min(run.begins.values()) - run.doorbell + run.done - max(run.ends.values())


def updates(
    name: str, request: Request, latency: int, measured: Measured, costs: dict[str, Cost]
) -> Iterator[Sample]:
    """What adapters add to a stripe, where the array waits for it."""
    its = counting(arrays(latency), measured.plan, 0)
    for step, (run,) in zip(request.steps, measured.steps, strict=True):
        rows = card_step(step)
        for number in sorted(run.begins):
            command = measured.lists[0][number]
            added = update(its, command, rows) if isinstance(command, isa.Matrix) else None
            found = unit_counts(its, command, rows)
            if added is None or found is None:
                continue
            took = run.ends[number] - run.begins[number]
            waits = (took - of(costs, *found, latency)) / added.stripes
            if waits > 0:
                array = of(costs, added.kind, added.array, latency)
                yield Sample(UPDATE, added.unit, latency, array + waits, f"{name} {command}")


Cost = dict[str, tuple[float, float]]  # [cycles, reads] by count


def of(costs: dict[str, Cost], kind: str, counts: Counts, latency: int) -> float:
    """Cycles by these costs."""
    return sum(n * (costs[kind][c][0] + costs[kind][c][1] * latency) for c, n in counts.items())


def fitted(found: Sequence[Sample]) -> tuple[Cost, float]:
    """The costs of one kind, and the largest error relative to a command's cycles."""
    names = sorted({name for sample in found for name in sample.counts})
    rows, target, took = [], [], np.array([sample.cycles for sample in found], float)
    for sample in found:
        counts = [float(sample.counts.get(name, 0)) for name in names]
        known = sum(KNOWN.get(name, 0.0) * n for name, n in zip(names, counts, strict=True))
        free = [0.0 if name in KNOWN else n for name, n in zip(names, counts, strict=True)]
        rows.append([*free, *(n * sample.latency for n in free)])
        target.append(sample.cycles - known)
    matrix, wanted = np.array(rows) / took[:, None], np.array(target) / took
    values, _ = nnls(matrix, wanted)
    error = float(np.abs(matrix @ values - wanted).max())
    half = len(names)
    return {
        name: (KNOWN.get(name, round(float(values[i]), 2)), round(float(values[half + i]), 3))
        for i, name in enumerate(names)
    }, error


def all_costs(measured: Iterable[tuple[str, int, Measured]]) -> dict[str, tuple[Cost, float]]:
    """Costs and errors by kind, of measured requests."""
    held = list(measured)
    by_kind: dict[str, list[Sample]] = defaultdict(list)
    for name, latency, one in held:
        for sample in samples(name, REQUESTS[name], latency, one):
            by_kind[sample.kind].append(sample)
    costs = {kind: fitted(found) for kind, found in by_kind.items()}
    plain = {kind: cost for kind, (cost, _) in costs.items()}
    added = [
        sample
        for name, latency, one in held
        for sample in updates(name, REQUESTS[name], latency, one, plain)
    ]
    return {**costs, **({UPDATE: fitted(added)} if added else {})}


def text(costs: dict[str, tuple[Cost, float]]) -> str:
    """As the data file has them."""
    lines = []
    for kind in sorted(costs):
        cost, error = costs[kind]
        pairs = ", ".join(f"{n}: [{c:g}, {r:g}]" for n, (c, r) in cost.items() if c or r)
        lines.append(f"  {kind}: {{ {pairs} }} # within {error:.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    from dataclasses import replace

    print(
        text(
            all_costs(
                (name, latency, measure(replace(request, alone=True), latency))
                for latency in LATENCIES
                for name, request in REQUESTS.items()
                if name not in ONCE or latency == LATENCIES[-1]
            )
        )
    )
