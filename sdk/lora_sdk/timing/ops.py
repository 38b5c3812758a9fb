"""Operators: what both front ends (shapes and command lists) make, and the scheduler times."""

from __future__ import annotations

from dataclasses import dataclass

MPU, VFU, ROUTER, DMA = "mpu", "vfu", "router", "dma"
WEIGHTS, ATTENTION, VECTOR, KV, LINK = "weights", "attention", "vfu", "kv", "link"
ADAPTER = "adapter"  # only where a step uses one
CATEGORIES = (WEIGHTS, ATTENTION, VECTOR, KV)


@dataclass(slots=True)  # not frozen: a step has thousands, and making frozen ones is slow
class Op:
    """One operator on one unit; all times in cycles.

    `start` is its start-up, `compute` the unit's own time, of which `vector` is the VFU's inside
    attention; `stream` the time of its bytes at the memory's effective bandwidth, which may begin
    before the operator does. `after` are indices of operators it waits for; where `segments`, it
    may begin on local data when the first of them, a gather, begins, and `local` is the share of
    its work that needs no other board's data. `bytes` come from HBM (or DDR for a prefill copy),
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
    banks: tuple[int, int, int] = (0, 0, 0)
    """Bank placement of the bytes: first bank, number of banks, bytes in the fullest one."""
