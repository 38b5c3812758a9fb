"""Addresses within banks: weight blocks are striped over several, tables lie in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import OverlayError, PlacementError
from lora_sdk.plan.tensors import MatrixSpec, Part, TableSpec

if TYPE_CHECKING:
    from lora_host.boards import Board
    from lora_host.overlay import Overlay

MIB = 1 << 20


@dataclass(frozen=True)
class MatrixPlacement:
    """Where a matrix [k, n] lies, by the block formula of abi.h."""

    spec: MatrixSpec
    bank_first: int
    bank_count: int
    merge: int
    first: int
    weight_line: int
    spilled: bool

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def k(self) -> int:
        return self.spec.k

    @property
    def n(self) -> int:
        return self.spec.n

    @property
    def parts(self) -> tuple[Part, ...]:
        """(checkpoint tensor, start, stop) of the columns, in order."""
        return self.spec.parts

    @property
    def bytes(self) -> int:
        """Bytes of the weights themselves."""
        return self.spec.bytes

    @property
    def placed_bytes(self) -> int:
        """Bytes of all blocks, their padding included."""
        return self.requests * self.merge * self.spec.block_bytes

    @property
    def requests(self) -> int:
        """Memory requests of `merge` blocks that stream all of it once."""
        return self.spec.matrices * self.requests_each

    @property
    def requests_each(self) -> int:
        """The same of one expert's matrix; of all where there are no experts."""
        return -(-self.spec.blocks // self.merge)

    @property
    def of_experts(self) -> Iterator[MatrixPlacement]:
        """Each expert's matrix as one of its own; itself where there are no experts."""
        if not self.spec.experts:
            yield self
        lines = self.merge * self.spec.block_bytes // abi.LINE_BYTES
        for number in range(self.spec.experts):
            row, first = divmod(self.first + number * self.requests_each, self.bank_count)
            yield replace(
                self,
                spec=self.spec.of_expert(number),
                first=first,
                weight_line=self.weight_line + row * lines,
            )

    def address(self, block: int) -> tuple[int, int]:
        """(bank, byte offset) of block `block` = column tile * ceil(k/128) + k block; of the first
        expert, whose requests the others' follow."""
        request, index = divmod(block, self.merge)
        row, bank = divmod(self.first + request, self.bank_count)
        offset = (row * self.merge + index) * self.spec.block_bytes
        return self.bank_first + bank, self.weight_line * abi.LINE_BYTES + offset


@dataclass(frozen=True)
class TablePlacement:
    """A table [rows, columns] from line `line` of `bank` on, rows padded to whole lines."""

    spec: TableSpec
    bank: int
    line: int

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def bytes(self) -> int:
        """Bytes of the values themselves."""
        return self.spec.bytes

    @property
    def placed_bytes(self) -> int:
        return self.spec.rows * self.spec.row_bytes

    @property
    def offset(self) -> int:
        """Byte offset in the bank."""
        return self.line * abi.LINE_BYTES


class Stripes:
    """One running request number over the weight banks, so there are no gaps between matrices with
    requests of equal size. Requests of another size begin in a new row of them."""

    def __init__(self, banks: Banks) -> None:
        self.banks = banks
        self.requests = 0  # of the size below, from the line below on
        self._request_lines = 0  # that one request occupies in a bank
        self._line = 0

    @property
    def end_line(self) -> int:
        """First line that no matrix occupies in any of the banks."""
        rows = -(-self.requests // self.banks.weight_count)
        return self._line + rows * self._request_lines

    def place(self, spec: MatrixSpec, reserved_lines: int) -> MatrixPlacement | None:
        """Places the next matrix; None if fewer than `reserved_lines` would remain free."""
        before = self.requests, self._request_lines, self._line
        banks = self.banks
        merge = banks.overlay.request_blocks(spec.k)
        lines = merge * spec.block_bytes // abi.LINE_BYTES
        if lines != self._request_lines:
            self._line, self.requests = self.end_line, 0
            self._request_lines = lines
        row, first = divmod(self.requests, banks.weight_count)
        line = self._line + row * lines
        placed = MatrixPlacement(
            spec, banks.weight_first, banks.weight_count, merge, first, line, False
        )
        self.requests += placed.requests
        if self.end_line + reserved_lines > self.banks.weight_lines:
            self.requests, self._request_lines, self._line = before
            return None
        return placed


class Shelf:
    """Allocates ranges of one bank, one after another."""

    def __init__(self, banks: Banks, bank: int, start: int = 0) -> None:
        self.banks = banks
        self.bank = bank
        self.end = start

    @property
    def free(self) -> int:
        """Bytes left."""
        return self.banks.usable(self.bank) - self.end

    def take(self, what: str, count: int, align: int = abi.LINE_BYTES) -> int:
        """Byte offset of `count` new bytes; PlacementError, with the bank's figures, when full."""
        start = -(-self.end // align) * align
        if start + count > self.banks.usable(self.bank):
            raise self.banks.full(what, self.bank, count, self.free)
        self.end = start + count
        return start

    def table(self, spec: TableSpec) -> TablePlacement:
        """Places a table."""
        offset = self.take(spec.name, spec.rows * spec.row_bytes)
        return TablePlacement(spec, self.bank, offset // abi.LINE_BYTES)

    def matrix(self, spec: MatrixSpec) -> MatrixPlacement:
        """Places a whole matrix outside the weight banks."""
        merge = self.banks.overlay.request_blocks(spec.k)
        count = spec.matrices * -(-spec.blocks // merge) * merge * spec.block_bytes
        line = self.take(spec.name, count) // abi.LINE_BYTES
        return MatrixPlacement(spec, self.bank, 1, merge, 0, line, True)


class Banks:
    """The banks that an overlay uses on one board; `rank` names the board in messages."""

    def __init__(self, overlay: Overlay, board: Board, rank: int) -> None:
        self.board = board
        self.rank = rank
        self.overlay = overlay
        self.control = overlay.control_bank
        self.spill = tuple(overlay.spill_banks)
        self.weight_first = overlay.weight_banks[0]
        self.weight_count = len(overlay.weight_banks)
        self._check(overlay)
        self.weight_lines = min(map(self.usable, overlay.weight_banks)) // abi.LINE_BYTES

    def _check(self, overlay: Overlay) -> None:
        named = {self.control, *self.spill, *overlay.weight_banks}
        unknown = sorted(named - {bank.index for bank in self.board.banks})
        if unknown:
            raise OverlayError(
                f"overlay {overlay.name} names bank {unknown[0]}, but board {self.board.name} has "
                f"{len(self.board.banks)} banks"
            )
        first = overlay.weight_banks[0]
        if list(overlay.weight_banks) != list(range(first, first + self.weight_count)):
            raise OverlayError(f"overlay {overlay.name}: weight banks are not consecutive")
        if set(overlay.weight_banks) & {self.control, *self.spill}:
            raise OverlayError(
                f"overlay {overlay.name}: control and spill banks must not be weight banks"
            )

    def usable(self, bank: int) -> int:
        """Bytes of a bank that may be reserved."""
        return self.board.banks[bank].usable

    def full(self, what: str, bank: int, requested: int, free: int) -> PlacementError:
        """The error of a bank that has no room for `what`."""
        return PlacementError(
            f"{what} does not fit on board {self.rank}, bank {self.board.bank_name(bank)}: "
            f"requested {mib(requested)}, free {mib(free)}, capacity {mib(self.usable(bank))}"
        )


def mib(count: int) -> str:
    """Bytes as MiB, for messages."""
    return f"{count / MIB:.1f} MiB"


def real_bytes(placed: Iterable[MatrixPlacement | TablePlacement]) -> int:
    """Bytes of the values themselves."""
    return sum(item.bytes for item in placed)
