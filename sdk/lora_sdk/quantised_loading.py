"""Quantised matrices on their way to the banks: blocks in batches of column tiles, and the scales
and orders that their products read."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import ModelError
from lora_host.placing import Range
from lora_sdk.model.quantisation import Int4Columns, Int8Columns, check_scale
from lora_sdk.packing import pack_int4, pack_int8, pack_rows, pack_scales
from lora_sdk.plan.banks import MatrixPlacement, TablePlacement
from lora_sdk.plan.model_plan import BoardPlan
from lora_sdk.plan.tensors import Part

if TYPE_CHECKING:
    from lora_host.cluster import Cluster

BATCH_BYTES = 8 << 20  # of unpacked weights at once: a few times that is the memory it takes

Bytes = npt.NDArray[np.uint8]
Note = Callable[[list[Range]], None]


class QuantisedWeights(Protocol):
    """What this needs of lora_sdk.model.checkpoint.Checkpoint."""

    def int8(self, name: str, start: int, stop: int) -> Int8Columns: ...
    def int4(self, name: str, start: int, stop: int) -> Int4Columns: ...
    def permutation(self, name: str) -> npt.NDArray[np.uint32] | None: ...
    def input_scale(self, name: str) -> np.float32: ...
    def vector(self, name: str) -> npt.NDArray[np.float16]: ...


class QuantisedLoader:
    """Writes one board's quantised matrices; `note` hears every range that was written."""

    def __init__(self, cluster: Cluster, weights: QuantisedWeights, note: Note) -> None:
        self._cluster = cluster
        self._weights = weights
        self._note = note

    def matrix(self, board: BoardPlan, placed: MatrixPlacement) -> None:
        """All blocks of a matrix, in batches of bounded memory; the last request is filled up with
        zero blocks."""
        tiles = -(-placed.n // abi.BLOCK_N)
        k_blocks = -(-placed.k // abi.BLOCK_K)
        step = max(1, BATCH_BYTES // (placed.k * abi.BLOCK_N))
        for first in range(0, tiles, step):
            last = min(tiles, first + step)
            blocks = self._blocks(placed, first * abi.BLOCK_N, min(placed.n, last * abi.BLOCK_N))
            if last == tiles:
                missing = placed.requests * placed.merge - tiles * k_blocks
                blocks = np.pad(blocks, ((0, missing), (0, 0)))
            self._write_blocks(board, placed, first * k_blocks, blocks)

    def _blocks(self, placed: MatrixPlacement, start: int, stop: int) -> Bytes:
        """Blocks of the matrix's columns start..stop-1."""
        chosen = placed.spec.format
        parts = list(columns_of(placed.parts, start, stop))
        if chosen.group is None:
            return pack_int8(_joined([self._weights.int8(*part).values for part in parts]))
        found = [self._weights.int4(*part) for part in parts]
        return pack_int4(
            _joined([part.values for part in found]),
            _joined([part.scales for part in found]),
            _joined([part.zeros for part in found]),
            chosen.group,
            placed.spec.block_bytes,
        )

    def _write_blocks(
        self, board: BoardPlan, placed: MatrixPlacement, first: int, blocks: Bytes
    ) -> None:
        """Blocks first.. of a matrix; those of one bank lie one behind the other."""
        numbers = np.arange(first, first + len(blocks))
        banks = (placed.first + numbers // placed.merge) % placed.bank_count
        for bank in range(placed.bank_count):
            chosen = np.flatnonzero(banks == bank)
            if chosen.size:
                where, offset = placed.address(int(numbers[chosen[0]]))
                self._write(board, where, offset, blocks[chosen].reshape(-1))

    def scales(self, board: BoardPlan, placed: TablePlacement) -> None:
        """FP32(s_x*s_w) of every column, s_x alone for 4-bit weights, and the bias."""
        spec = placed.spec
        four_bit = board.matrices[placed.name.removesuffix(".scales")].spec.format.four_bit
        found = [self._column_scales(part, four_bit) for part in spec.parts if part.width]
        bias = None
        if spec.bias:
            bias = _joined(
                [self._weights.vector(f"{p.tensor}.bias")[p.start : p.stop] for p in spec.parts]
            )
        self._write(board, placed.bank, placed.offset, pack_scales(_joined(found), bias))

    def _column_scales(self, part: Part, four_bit: bool) -> npt.NDArray[np.float32]:
        s_x = check_scale(
            f"{part.tensor}: scale of its input", self._weights.input_scale(part.tensor)
        )
        if four_bit:
            return np.full(part.width, s_x, np.float32)
        s_w = self._weights.int8(part.tensor, part.start, part.stop).scales
        with np.errstate(over="ignore", under="ignore"):
            scales: npt.NDArray[np.float32] = s_w * s_x
        if not np.isfinite(scales).all():
            raise ModelError(
                f"{part.tensor}: scale of its weights times that of its input ({s_x}) is out of "
                "FP32's range"
            )
        return scales

    def permutation(self, board: BoardPlan, placed: TablePlacement) -> None:
        """uint32 [K], after a check that it is one and that parts of the product agree."""
        matrix = board.matrices[placed.name.removesuffix(".permutation")]
        orders = {part.tensor: self._weights.permutation(part.tensor) for part in matrix.parts}
        (first, order), *others = orders.items()
        if order is None or not np.array_equal(np.sort(order), np.arange(matrix.k)):
            raise ModelError(f"{first}: the order of its inputs is no permutation of {matrix.k}")
        for name, other in others:
            if other is None or not np.array_equal(order, other):
                raise ModelError(
                    f"{name}: the order of its inputs (act-order) is another than that of {first}, "
                    "a part of the same product; expected the same"
                )
        raw = pack_rows(order.astype("<u4")[None], placed.spec.row_bytes)[0]
        self._write(board, placed.bank, placed.offset, raw)

    def _write(self, board: BoardPlan, bank: int, offset: int, data: Bytes) -> None:
        raw = data.data
        self._cluster.write(board.board, bank, offset, raw)
        self._note([Range(board.board, bank, offset, raw.nbytes, zlib.crc32(raw))])


def columns_of(parts: tuple[Part, ...], start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """(tensor, start, stop) of a matrix's columns start..stop-1, which are those of its parts one
    after another."""
    first = 0
    for part in parts:
        low, high = max(start, first), min(stop, first + part.width)
        if low < high:
            yield part.tensor, part.start + low - first, part.start + high - first
        first += part.width


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
