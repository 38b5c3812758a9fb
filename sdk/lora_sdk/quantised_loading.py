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
Scales = npt.NDArray[np.float32]
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
        """All blocks of a matrix, in batches of bounded memory, then what its product reads beside
        them. The last request is filled up with zero blocks."""
        scales: list[Scales] = []
        tiles = -(-placed.n // abi.BLOCK_N)
        k_blocks = -(-placed.k // abi.BLOCK_K)
        step = max(1, BATCH_BYTES // (placed.k * abi.BLOCK_N))
        for first in range(0, tiles, step):
            last = min(tiles, first + step)
            columns = first * abi.BLOCK_N, min(placed.n, last * abi.BLOCK_N)
            parts = list(columns_of(placed.parts, *columns))
            blocks = self._blocks(placed, parts, scales)
            missing = placed.requests * placed.merge - tiles * k_blocks
            if missing and last == tiles:
                blocks = np.pad(blocks, ((0, missing), (0, 0)))
            self._write_blocks(board, placed, first * k_blocks, blocks)
        if placed.spec.scales is not None:
            self._load_scales(board, board.tables[placed.spec.scales], _joined(scales))
        if placed.spec.permutation is not None:
            self._load_order(board, placed, board.tables[placed.spec.permutation])

    def _blocks(
        self, placed: MatrixPlacement, parts: list[tuple[str, int, int]], scales: list[Scales]
    ) -> Bytes:
        """Blocks of some columns; appends the columns' scales to `scales`."""
        chosen = placed.spec.format
        if chosen.integer:
            inputs = {name: self._input_scale(name) for name, _, _ in parts}
        if chosen.group is None:
            eight = [self._weights.int8(*part) for part in parts]
            for (name, _, _), part in zip(parts, eight, strict=True):
                scales.append(_product_scales(name, part.scales, inputs[name]))
            return pack_int8(_joined([part.values for part in eight]))
        if chosen.integer:
            for name, start, stop in parts:
                scales.append(np.full(stop - start, inputs[name], np.float32))
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

    def _input_scale(self, name: str) -> np.float32:
        return check_scale(f"{name}: scale of its input", self._weights.input_scale(name))

    def _load_scales(self, board: BoardPlan, placed: TablePlacement, scales: Scales) -> None:
        """A scale of every column, and the bias behind them."""
        bias = None
        if placed.spec.bias:
            bias = _joined(
                [
                    self._weights.vector(f"{part.tensor}.bias")[part.start : part.stop]
                    for part in placed.spec.parts
                ]
            )
        self._write(board, placed.bank, placed.offset, pack_scales(scales, bias))

    def _load_order(
        self, board: BoardPlan, matrix: MatrixPlacement, placed: TablePlacement
    ) -> None:
        """uint32 [K], after a check that it is an order and that parts of the product agree."""
        orders = {part.tensor: self._weights.permutation(part.tensor) for part in matrix.parts}
        (first, order), *others = orders.items()
        if order is None:
            order = np.arange(matrix.k, dtype=np.uint32)  # act-order that changes nothing
        if not np.array_equal(np.sort(order), np.arange(matrix.k)):
            raise ModelError(f"{first}: the order of its inputs is no permutation of {matrix.k}")
        for name, other in others:
            if not np.array_equal(order, np.arange(matrix.k) if other is None else other):
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


def _product_scales(name: str, s_w: Scales, s_x: np.float32) -> Scales:
    """FP32(s_x*s_w) of columns; ModelError where it is no number."""
    with np.errstate(over="ignore", under="ignore"):
        scales: Scales = s_w * s_x
    if not np.isfinite(scales).all():
        raise ModelError(
            f"{name}: scale of its weights times that of its input ({s_x}) is out of FP32's range"
        )
    return scales


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
