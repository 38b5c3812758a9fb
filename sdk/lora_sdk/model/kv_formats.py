"""The formats of the KV cache, one row per type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lora_host import abi
from lora_host.errors import ModelError

KvKind = Literal["fp16", "int8", "int8-heads"]


@dataclass(frozen=True)
class KvFormat:
    """`abi_type` is a constant of abi.h, `element_bytes` those of a value. `static`: q, k and v are
    INT8 by static scales, and so is attention's arithmetic. `by_head`: each head of a position has
    its own FP16 scale."""

    name: KvKind
    abi_type: str
    element_bytes: int
    static: bool = False
    by_head: bool = False

    @property
    def type_number(self) -> int:
        """A list header's kv_type."""
        return int(getattr(abi, self.abi_type))

    @property
    def quantized(self) -> bool:
        """Whether K and V are not FP16."""
        return self.static or self.by_head

    def block_lines(self, head_dim: int) -> int:
        """Lines of a block of 32 positions of one head: values, plus a scale line if `by_head`."""
        values = abi.TILE_POSITIONS * head_dim * self.element_bytes // abi.LINE_BYTES
        return values + (1 if self.by_head else 0)


_ROWS = (
    KvFormat("fp16", "KV_FP16", 2),
    KvFormat("int8", "KV_INT8", 1, static=True),
    KvFormat("int8-heads", "KV_INT8_HEADS", 1, by_head=True),
)
KV_KINDS: tuple[KvKind, ...] = tuple(row.name for row in _ROWS)


def kv_format(name: str) -> KvFormat:
    """The type of this name; ModelError if there is none."""
    for row in _ROWS:
        if row.name == name:
            return row
    raise ModelError(f"KV cache type {name!r}; expected one of {', '.join(KV_KINDS)}")
