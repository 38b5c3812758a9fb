"""Operators: created by both front ends (shapes and command lists) and timed by the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

MPU, VFU, ROUTER, DMA, CONTROL = "mpu", "vfu", "router", "dma", "control"
WEIGHTS, ATTENTION, VECTOR, KV, LINK = "weights", "attention", "vfu", "kv", "link"
LINK_EXPOSED = "link_exposed"  # what links take that nothing hides, votes too
ADAPTER = "adapter"  # only if a step uses an adapter
# Of overheads.py, not of operators.
DISPATCH, HOST, SCRUB = "dispatch", "host", "scrub"
CATEGORIES = (WEIGHTS, ATTENTION, VECTOR, KV)


@dataclass(slots=True)  # not frozen: a step has thousands, and frozen ones are slow to create
class Op:
    """One operator on one unit. All times are in cycles.

    `start`: its start-up. `compute`: the unit's time, of which `vector` is the VFU's share inside
    attention. `stream`: the time of its bytes at the memory's effective bandwidth; streaming may
    begin before the operator. `after`: indices of the operators it waits for. With `segments` it
    may begin on local data when the first of them, a gather, begins. `local`: share of its work
    that needs no data of other boards. `bytes` come from HBM (or DDR for a prefill copy).
    `link_bytes` leave on the busiest port."""

    unit: str
    category: str
    what: str
    layer: int
    compute: float
    start: float = 0.0
    stream: float = 0.0
    vector: float = 0.0
    after: tuple[int, ...] = ()
    segments: bool = False
    local: float = 1.0
    bytes: float = 0.0
    macs: float = 0.0
    link_bytes: float = 0.0
    not_before: float = 0.0
    """When the boards of the stage before have sent what this gather receives."""
    banks: tuple[int, int, int] = (0, 0, 0)
    """Bank placement of the bytes: first bank, number of banks, bytes in the fullest one."""
