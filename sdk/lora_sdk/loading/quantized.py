"""Quantized matrices into the banks, with the scales and orders that their products read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from lora_host.errors import ModelError
from lora_host.placing import Range, crc32
from lora_sdk.loading.packing import pack_rows, pack_scales
from lora_sdk.loading.quantized_packing import (
    Batch,
    Bytes,
    QuantizedWeights,
    Run,
    Scales,
    batches,
    joined,
    pack_batch,
)
from lora_sdk.plan.banks import MatrixPlacement, TablePlacement
from lora_sdk.plan.model_plan import BoardPlan

if TYPE_CHECKING:
    from lora_host.cluster import Cluster

Note = Callable[[list[Range]], None]
Packed = tuple[list[Run], list[Scales]]


class QuantizedLoader:
    """Writes quantized matrices; `note` receives every range that was written. Batches are
    packed on `threads` threads while those before them are written."""

    def __init__(
        self, cluster: Cluster, weights: QuantizedWeights, note: Note, threads: int
    ) -> None:
        self._cluster = cluster
        self._weights = weights
        self._note = note
        self._threads = threads

    def load(self, board: BoardPlan, matrices: list[MatrixPlacement]) -> None:
        """The matrices of a board, and what their products read beside them."""
        work = (batch for placed in matrices for batch in batches(placed))
        scales: list[Scales] = []
        for batch, (runs, found) in self._packed(work):
            for run in runs:
                self._write(board, run)
            scales += found
            if batch.ends:
                self._load_tables(board, batch.placed, scales)
                scales = []

    def _packed(self, work: Iterator[Batch]) -> Iterator[tuple[Batch, Packed]]:
        """Batches in order with what they were packed to, at most one a thread and one more in
        memory."""
        with ThreadPoolExecutor(self._threads) as pool:
            waiting: deque[tuple[Batch, Future[Packed]]] = deque()
            try:
                for batch in work:
                    waiting.append((batch, pool.submit(pack_batch, self._weights, batch)))
                    if len(waiting) > self._threads:
                        done, future = waiting.popleft()
                        yield done, future.result()
                while waiting:
                    done, future = waiting.popleft()
                    yield done, future.result()
            finally:
                for _, future in waiting:
                    future.cancel()

    def _load_tables(self, board: BoardPlan, placed: MatrixPlacement, scales: list[Scales]) -> None:
        if placed.spec.scales is not None:
            self._load_scales(board, board.tables[placed.spec.scales], joined(scales))
        if placed.spec.permutation is not None:
            self._load_order(board, placed, board.tables[placed.spec.permutation])

    def _load_scales(self, board: BoardPlan, placed: TablePlacement, scales: Scales) -> None:
        """A scale of every column, and the bias behind them."""
        bias = None
        if placed.spec.bias:
            bias = joined(
                [
                    self._weights.vector(f"{part.tensor}.bias")[part.start : part.stop]
                    for part in placed.spec.parts
                ]
            )
        self._write_table(board, placed, pack_scales(scales, bias))

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
        self._write_table(board, placed, raw)

    def _write_table(self, board: BoardPlan, placed: TablePlacement, data: Bytes) -> None:
        self._write(board, Run(placed.bank, placed.offset, data, crc32(data)))

    def _write(self, board: BoardPlan, run: Run) -> None:
        raw = run.data.data
        self._cluster.write(board.board, run.bank, run.offset, raw)
        self._note([Range(board.board, run.bank, run.offset, raw.nbytes, run.crc)])
