"""Writes a model's weights into the boards' banks and compares checksums made by the boards."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import TransportError
from lora_sdk.model.rope import rope_table
from lora_sdk.packing import Half, pack_blocks, pack_rows
from lora_sdk.plan.banks import MatrixPlacement, TablePlacement, mib
from lora_sdk.plan.model_plan import BoardPlan, Plan

if TYPE_CHECKING:
    from lora_host.cluster import Cluster

STAGING_BYTES = 16 << 20  # host memory for one piece of a tensor on its way to a board

Progress = Callable[[int, int], None]


class Weights(Protocol):
    """What loading needs of lora_sdk.model.checkpoint.Checkpoint."""

    def matrix(self, name: str, start: int, stop: int) -> Half: ...
    def vector(self, name: str) -> Half: ...
    def rows(self, name: str, start: int, stop: int) -> Half: ...


@dataclass
class Range:
    """Bytes of one bank that loading wrote without a gap, and their CRC-32."""

    board: int
    bank: int
    offset: int
    bytes: int
    crc: int


class Loader:
    """Loads every board of a plan. `ranges` is what was written."""

    def __init__(
        self, cluster: Cluster, plan: Plan, weights: Weights, progress: Progress | None = None
    ) -> None:
        self.ranges: list[Range] = []
        self._cluster = cluster
        self._plan = plan
        self._weights = weights
        self._progress = progress
        self._last: dict[tuple[int, int], Range] = {}
        self._total = sum(board.placed_bytes for board in plan.boards)
        self._done = 0

    def load(self) -> None:
        """Writes all matrices and tables; ModelError for a weight that FP16 cannot hold."""
        for board in self._plan.boards:
            for matrix in board.matrices.values():
                self._load_matrix(board, matrix)
            for table in board.tables.values():
                self._load_table(board, table)

    def check(self) -> None:
        """Compares each range with the board's own sum; TransportError names the first that
        differs. Nothing is written again: what changed once may change once more."""
        for placed in self.ranges:
            found = self._cluster.checksum(placed.board, placed.bank, placed.offset, placed.bytes)
            if found != placed.crc:
                bank = self._plan.board.bank_name(placed.bank)
                raise TransportError(
                    f"board {placed.board} bank {bank}: checksum of {mib(placed.bytes)} at "
                    f"offset {placed.offset:#x} is {found:#010x}, expected {placed.crc:#010x}; the "
                    "weights on the board are damaged, load them again and check the board's memory"
                )

    def _load_matrix(self, board: BoardPlan, placed: MatrixPlacement) -> None:
        """Column tiles in pieces that the staging buffer holds."""
        k_blocks = -(-placed.k // abi.BLOCK_K)
        tiles = max(1, STAGING_BYTES // (k_blocks * abi.BLOCK_BYTES_FP16))
        step = tiles * abi.BLOCK_N
        for start in range(0, placed.n, step):
            stop = min(placed.n, start + step)
            blocks = pack_blocks(self._columns(placed, start, stop))
            if stop == placed.n:
                blocks = _whole_requests(blocks, placed)
            self._write_blocks(board, placed, start // abi.BLOCK_N * k_blocks, blocks)

    def _columns(self, placed: MatrixPlacement, start: int, stop: int) -> Half:
        """Columns start..stop of the board's matrix, from the tensors that it is made of."""
        pieces, first = [], 0
        for part in placed.parts:
            low, high = max(start, first), min(stop, first + part.width)
            if low < high:
                shift = part.start - first
                pieces.append(self._weights.matrix(part.tensor, low + shift, high + shift))
            first += part.width
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)

    def _write_blocks(
        self, board: BoardPlan, placed: MatrixPlacement, first: int, blocks: Half
    ) -> None:
        """Consecutive blocks from block `first` on; those of one bank are one run of bytes."""
        numbers = np.arange(first, first + len(blocks))
        banks = (placed.first + numbers // placed.merge) % placed.bank_count
        for bank in np.unique(banks):
            chosen = np.flatnonzero(banks == bank)
            where, offset = placed.address(int(numbers[chosen[0]]))
            self._write(board.board, where, offset, blocks[chosen])

    def _load_table(self, board: BoardPlan, placed: TablePlacement) -> None:
        """Table rows in pieces that the staging buffer holds."""
        spec = placed.spec
        step = max(1, STAGING_BYTES // spec.row_bytes)
        for start in range(0, spec.rows, step):
            stop = min(spec.rows, start + step)
            packed = pack_rows(self._table_rows(placed, start, stop), spec.row_bytes)
            self._write(board.board, placed.bank, placed.offset + start * spec.row_bytes, packed)

    def _table_rows(self, placed: TablePlacement, start: int, stop: int) -> npt.NDArray[np.generic]:
        spec = placed.spec
        if spec.kind == "rope":
            table = rope_table(self._plan.config, spec.rows)
            return table.reshape(spec.rows, -1)[start:stop]
        if spec.kind == "embedding":
            (part,) = spec.parts
            return self._weights.rows(part.tensor, start, stop)[:, part.start : part.stop]
        pieces = [self._weights.vector(part.tensor)[part.start : part.stop] for part in spec.parts]
        return np.concatenate(pieces)[None]

    def _write(self, board: int, bank: int, offset: int, data: npt.NDArray[np.generic]) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1).data
        self._cluster.write(board, bank, offset, raw)
        last = self._last.get((board, bank))
        if last is not None and last.offset + last.bytes == offset:
            last.bytes += raw.nbytes
            last.crc = zlib.crc32(raw, last.crc)
        else:
            last = Range(board, bank, offset, raw.nbytes, zlib.crc32(raw))
            self._last[board, bank] = last
            self.ranges.append(last)
        self._done += raw.nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)


def _whole_requests(blocks: Half, placed: MatrixPlacement) -> Half:
    """The matrix's last blocks with zero blocks behind them up to a whole request, so that every
    placed byte has been written."""
    missing = placed.requests * placed.merge - placed.spec.blocks
    if not missing:
        return blocks
    return np.concatenate([blocks, np.zeros((missing, *blocks.shape[1:]), np.float16)])


def placed_ranges(loader: Loader) -> Iterator[Range]:
    """What was written, by board and bank."""
    yield from sorted(loader.ranges, key=lambda item: (item.board, item.bank, item.offset))
