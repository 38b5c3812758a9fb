"""Schedules operators: start and end of each, and the breakdown of the time.

Units run in order and in parallel. Memory prefetch is limited by the prefetch buffer, and begins no
sooner than the unit begins the operator before: control tells it one command ahead, or `ahead` of
them. An operator after a gather works on local data first (III.B, the fourth method), so only the
part of the gather beyond that is exposed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lora_lab.timing.ops import CATEGORIES, ROUTER, VECTOR, Op


@dataclass(frozen=True)
class Span:
    """Start and end of operator `index`, in cycles of the design's clock."""

    index: int
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """`cycles`: total. `exposed`: link cycles that are not hidden. `hidden`: the others. `by`:
    cycles on the critical path by category (weights, attention, vfu, kv, start_up, link_exposed,
    and adapter if there is one), which sum to `cycles`. `stall`: the part that waited for memory.
    """

    cycles: float
    by: dict[str, float]
    hidden: float
    stall: float
    busy: dict[str, float]
    spans: tuple[Span, ...]


def schedule(
    ops: Sequence[Op],
    prefetch_cycles: float = 0.0,
    keep: bool = False,
    since: float = 0.0,
    ahead: int = 1,
) -> Timeline:
    """Time `ops`. `prefetch_cycles`: size of the prefetch buffer in cycles of streaming. `keep`:
    also return the spans. `since`: cycles that others took, which `by` leaves out. `ahead`:
    operators that a unit is told beyond the one that runs, at least 1."""
    unit_free: dict[str, float] = {}
    told: dict[str, deque[float]] = {}  # when a unit began its last `ahead` operators
    begins = [0.0] * len(ops)
    ends = [0.0] * len(ops)
    by = dict.fromkeys((*CATEGORIES, "start_up", "link_exposed"), 0.0)
    busy: dict[str, float] = {}
    memory = stall = linked = 0.0
    front = since
    for index, op in enumerate(ops):
        begin = max(unit_free.get(op.unit, 0.0), op.not_before)
        gathered = 0.0
        for other in op.after:
            if op.segments and ops[other].unit == ROUTER:
                begin = max(begin, begins[other])
                gathered = max(gathered, ends[other])
            else:
                begin = max(begin, ends[other])
        work = op.compute
        if op.stream:
            earliest = max(memory, begin + op.start - prefetch_cycles, _known(told, op.unit, ahead))
            memory = earliest + op.stream
            work = max(work, memory - begin - op.start)
        end = begin + op.start + work
        exposed = 0.0
        if gathered:
            exposed = max(0.0, gathered + (1.0 - op.local) * work - end)
            end += exposed
        begins[index], ends[index] = begin, end
        unit_free[op.unit] = end
        told.setdefault(op.unit, deque(maxlen=ahead)).append(begin)
        busy[op.unit] = busy.get(op.unit, 0.0) + op.start + op.compute
        if op.unit == ROUTER:
            linked += end - begin
        if end <= front or (op.unit == ROUTER and _covered(ops, index)):
            continue
        _attribute(by, op, end - front, exposed)
        stall += min(end - front, max(0.0, work - op.compute))
        front = end
    hidden = max(0.0, linked - by["link_exposed"])
    spans = tuple(Span(i, begins[i], ends[i]) for i in range(len(ops))) if keep else ()
    return Timeline(max(ends, default=0.0), by, hidden, stall, busy, spans)


def _known(told: dict[str, deque[float]], unit: str, ahead: int) -> float:
    """When a unit is told its next operator: as it begins the one `ahead` before it."""
    begun = told.get(unit)
    return begun[0] if begun and len(begun) == ahead else 0.0


def _covered(ops: Sequence[Op], index: int) -> bool:
    """Whether the next operator that waits for this gather counts its exposed part."""
    following = ops[index + 1] if index + 1 < len(ops) else None
    return following is not None and following.segments and index in following.after


def _attribute(by: dict[str, float], op: Op, new: float, exposed: float) -> None:
    """Split the `new` cycles that `op` adds to the critical path."""
    if op.unit == ROUTER:
        by["link_exposed"] += new
        return
    exposed = min(new, exposed)
    by["link_exposed"] += exposed
    new -= exposed
    start = min(new, op.start)
    by["start_up"] += start
    new -= start
    vector = min(new, op.vector)
    by[VECTOR] += vector
    by[op.category] = by.get(op.category, 0.0) + new - vector
