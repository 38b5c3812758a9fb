"""The KV cache's pages over a board's weight banks (abi.h defines the address of a block)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lora_host import abi
from lora_sdk.model.kv_formats import KvFormat, KvKind, kv_format


def tiles(positions: int) -> int:
    """Pages that `positions` positions of one sequence need."""
    return -(-positions // abi.TILE_POSITIONS)


@dataclass(frozen=True)
class KvLayout:
    """`pages` pages (the first `scratch_pages` for uncommitted rows) of `layers` x `heads` x {K, V}
    blocks of 32 positions, striped over banks `bank_first` .. from line `line` on."""

    bank_first: int
    bank_count: int
    line: int
    layers: int
    heads: int
    head_dim: int
    pages: int
    scratch_pages: int
    kind: KvKind = "fp16"

    @property
    def format(self) -> KvFormat:
        """How K and V are stored."""
        return kv_format(self.kind)

    @property
    def page_stride(self) -> int:
        """Blocks from one page to the next; odd, so that a block's bank changes with the page."""
        return (self.layers * self.heads * 2) | 1

    @property
    def block_lines(self) -> int:
        """Lines of one block, scales included."""
        return self.format.block_lines(self.head_dim)

    @property
    def block_bytes(self) -> int:
        return abi.LINE_BYTES * self.block_lines

    @property
    def bytes(self) -> int:
        """Bytes of all blocks, without the stride's gaps."""
        return self.pages * self.layers * self.heads * 2 * self.block_bytes

    @property
    def lines(self) -> int:
        """Lines of every bank that the cache occupies, from `line` on."""
        return -(-self.pages * self.page_stride // self.bank_count) * self.block_lines

    def address(self, page: int, layer: int, head: int, value: bool) -> tuple[int, int]:
        """(bank, byte offset) of the K or V block of a local KV head."""
        block = page * self.page_stride + (layer * self.heads + head) * 2 + int(value)
        bank = self.bank_first + block % self.bank_count
        line = self.line + block // self.bank_count * self.block_lines
        return bank, line * abi.LINE_BYTES

    def first_block(self, page: int, layer: int) -> int:
        """Number of the first block of a layer in a page."""
        return page * self.page_stride + layer * self.heads * 2

    def runs(self, first: int, count: int) -> Iterator[tuple[int, int, slice]]:
        """Where blocks first .. first+count-1 lie: (bank, byte offset, which of them), each without
        a gap in its bank."""
        for index in range(min(count, self.bank_count)):
            bank, row = (first + index) % self.bank_count, (first + index) // self.bank_count
            offset = (self.line + row * self.block_lines) * abi.LINE_BYTES
            yield self.bank_first + bank, offset, slice(index, None, self.bank_count)

    def capacity(self, bank_lines: int) -> int:
        """Pages that fit if the smallest bank has `bank_lines` lines in total."""
        free = max(0, bank_lines - self.line) // self.block_lines
        return free * self.bank_count // self.page_stride
