"""Changes of the boards' page tables and cache."""

from __future__ import annotations

from dataclasses import dataclass

from lora_host import abi


@dataclass(frozen=True)
class KvOp:
    """One change of the boards' page tables or cache. They run in order, before the step's rows."""

    kind: int
    sequence: int
    a: int
    b: int
    c: int

    @classmethod
    def table(cls, sequence: int, tile: int, page: int) -> KvOp:
        """Map tile `tile` (32 positions) of the sequence to `page`."""
        return cls(abi.KV_TABLE, sequence, tile, page, 0)

    @classmethod
    def length(cls, sequence: int, length: int) -> KvOp:
        """Set the sequence's committed positions to `length`; drop its uncommitted rows."""
        return cls(abi.KV_LENGTH, sequence, length, 0, 0)

    @classmethod
    def copy(cls, source_page: int, target_page: int, positions: int) -> KvOp:
        """Copy the first `positions` positions of one page to another, all layers and heads."""
        return cls(abi.KV_COPY, 0, source_page, target_page, positions)

    @classmethod
    def commit(cls, sequence: int, length: int, path_index: int, count: int) -> KvOp:
        """Commit `count` slots at `path_index` of the step's path as positions from `length` on;
        drop the sequence's other uncommitted rows. `count` may be 0."""
        return cls(abi.KV_COMMIT, sequence, length, path_index, count)
