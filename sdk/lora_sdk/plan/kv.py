"""The KV cache's pages over a board's banks (abi.h defines the address of a block)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lora_host import abi
from lora_sdk.model.kv_formats import KvFormat, KvKind, kv_format


def tiles(positions: int) -> int:
    """Pages that `positions` positions of one sequence need."""
    return -(-positions // abi.TILE_POSITIONS)


@dataclass(frozen=True)
class SpilledPages:
    """Pages from number `first_page` on, striped over banks `bank_first` .. (DDR) from line `line`
    on."""

    first_page: int
    bank_first: int
    bank_count: int
    line: int


@dataclass(frozen=True)
class KvLayout:
    """`pages` pages (the first `scratch_pages` for uncommitted rows) of `layers` x `heads` x {K, V}
    blocks of 32 positions, striped over banks `bank_first` .. from line `line` on. `spill`: where
    those lie that the weight banks have no room for, the last ones."""

    bank_first: int
    bank_count: int
    line: int
    layers: int
    heads: int
    head_dim: int
    pages: int
    scratch_pages: int
    kind: KvKind = "fp16"
    spill: SpilledPages | None = None

    @property
    def first_spilled(self) -> int:
        """The first page outside the weight banks, `pages` if there is none."""
        return self.pages if self.spill is None else self.spill.first_page

    @property
    def spilled_pages(self) -> int:
        """Pages outside the weight banks."""
        return self.pages - self.first_spilled

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
    def page_bytes(self) -> int:
        """Bytes of one page's blocks."""
        return self.layers * self.heads * 2 * self.block_bytes

    @property
    def bytes(self) -> int:
        """Bytes of all blocks, without the stride's gaps."""
        return self.pages * self.page_bytes

    @property
    def lines(self) -> int:
        """Lines of every weight bank that the cache occupies, from `line` on."""
        return self.lines_of(self.first_spilled, self.bank_count)

    def lines_of(self, pages: int, banks: int) -> int:
        """Lines of every one of `banks` banks that `pages` pages occupy."""
        return -(-pages * self.page_stride // banks) * self.block_lines

    def address(self, page: int, layer: int, head: int, value: bool) -> tuple[int, int]:
        """(bank, byte offset) of the K or V block of a local KV head."""
        first_bank, banks, line, first_page = self._pool(page)
        block = (page - first_page) * self.page_stride + (layer * self.heads + head) * 2
        row, bank = divmod(block + int(value), banks)
        return first_bank + bank, (line + row * self.block_lines) * abi.LINE_BYTES

    def _pool(self, page: int) -> tuple[int, int, int, int]:
        """First bank, number of banks, line and first page of the banks that hold a page."""
        spill = self.spill
        if spill is None or page < spill.first_page:
            return self.bank_first, self.bank_count, self.line, 0
        return spill.bank_first, spill.bank_count, spill.line, spill.first_page

    def runs(self, page: int, layer: int, count: int) -> Iterator[tuple[int, int, slice]]:
        """Where `count` blocks lie, from the first one of a layer in a page on: (bank, byte offset,
        which of them), each without a gap in its bank. All in the same banks as the page."""
        first_bank, banks, line, first_page = self._pool(page)
        first = (page - first_page) * self.page_stride + layer * self.heads * 2
        for index in range(min(count, banks)):
            row, bank = divmod(first + index, banks)
            offset = (line + row * self.block_lines) * abi.LINE_BYTES
            yield first_bank + bank, offset, slice(index, None, banks)

    def capacity(self, bank_lines: int) -> int:
        """Pages that fit in the weight banks if the smallest has `bank_lines` lines in total."""
        return self.pages_in(bank_lines - self.line, self.bank_count)

    def pages_in(self, lines: int, banks: int) -> int:
        """Pages that fit in `lines` lines of every one of `banks` banks."""
        return max(0, lines) // self.block_lines * banks // self.page_stride
