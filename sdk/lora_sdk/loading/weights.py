"""Writes a model's weights into the boards' banks and compares checksums made by the boards.

The files are mapped and packed in C batch by batch, so the model is never in host memory twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import TransportError
from lora_host.placing import PackPart, PackTask, Range, Scratch, crc32
from lora_sdk.loading.packing import pack_rows
from lora_sdk.loading.quantized import (
    QuantizedWeights,
    ReadPart,
    bias_row,
    joined,
    order_table,
    scale_table,
    tile_parts,
)
from lora_sdk.loading.recurrence import recurrence_table
from lora_sdk.model.alibi import slope_table
from lora_sdk.model.container import RAW_TYPES
from lora_sdk.model.quantization import ActivationScales
from lora_sdk.model.rope import rope_table
from lora_sdk.model.stored import Stored
from lora_sdk.plan.banks import MatrixPlacement, TablePlacement, mib
from lora_sdk.plan.model_plan import BoardPlan, Plan
from lora_sdk.plan.tensors import Part

if TYPE_CHECKING:
    from lora_host.cluster import Cluster

AROUND_BYTES = 512 << 10  # what the system maps around a range that is read
BATCH_BYTES = 32 << 20  # of the files, mapped at once; also the step of progress and of Ctrl-C
MAX_BATCH_BYTES = 256 << 20  # of large models: threads wait for each other after every batch
COPIED_BYTES = 4  # of an element that is not read as the file stores it
QUANTIZED_BYTES = 16 << 20  # of unpacked weights in a task: scales are converted for each
PROGRAM_BYTES = 64 << 20  # of this process without a model
EXTRA_PART = 12  # program and batch are a 12th of a large model

Bytes = npt.NDArray[np.uint8]
Progress = Callable[[int, int], None]


class Weights(QuantizedWeights, Protocol):
    """The part of lora_sdk.model.checkpoint.Checkpoint that loading uses."""

    def stored(self, name: str) -> Stored: ...
    def forget(self) -> None: ...
    def activation_scales(self) -> ActivationScales: ...


@dataclass(frozen=True)
class _Load:
    """A part of loading that can be done again: writes `ranges`, of the batch of that number or by
    `write`."""

    ranges: list[Range]
    batch: int | None = None
    write: Callable[[], list[Range]] | None = None


class Loader:
    """Loads every board of a plan. `ranges` is what was written."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        weights: Weights,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        """`progress(done, total)` receives bytes; `threads` pack, None for one per core."""
        self.ranges: list[Range] = []
        self._cluster = cluster
        self._plan = plan
        self._weights = weights
        self._progress = progress
        self._threads = threads
        self._last: dict[tuple[int, int], Range] = {}
        self._loads: list[_Load] = []
        self._ropes: dict[str, npt.NDArray[np.float32]] = {}
        self._total = sum(board.placed_bytes for board in plan.boards)
        self._done = 0
        extra = self._total // EXTRA_PART - PROGRAM_BYTES
        self._batch_bytes = min(MAX_BATCH_BYTES, max(BATCH_BYTES, extra))

    def load(self) -> None:
        """Writes all matrices and tables; ModelError names a weight out of FP16's range."""
        scratch = Scratch(self._threads)
        self._note([])
        for number, batch in enumerate(_batches(self._tasks(), self._batch_bytes)):
            self._loaded(_Load(self._cluster.place(batch, scratch), batch=number))
            self._weights.forget()
        for board in self._plan.boards:
            for matrix in board.matrices.values():
                self._write_load(partial(self._load_tables, board, matrix))
            for table in board.tables.values():
                if table.spec.kind == "rope":
                    self._write_load(partial(self._load_rope, board, table))
                if table.spec.kind == "wide":
                    self._write_load(partial(self._load_wide, board, table))
                if table.spec.kind == "recurrence":
                    self._write_load(partial(self._load_recurrence, board, table))
                if table.spec.kind == "sinks":
                    self._write_load(partial(self._load_sinks, board, table))
            if "slopes" in board.tables:
                self._write_load(partial(self._load_slopes, board, board.tables["slopes"]))
        self._weights.forget()

    def repair(self, repaired: Counter[int]) -> None:
        """Loads again what the boards' own sums show to be damaged, and compares once more. Adds
        the bytes of the damaged ranges to `repaired`, by board, before they are loaded.
        TransportError if one stays damaged."""
        wrong = self._wrong_loads()
        for one in (one for _, found in wrong for one in found):
            repaired[one.board] += one.bytes
        if not wrong:
            return
        batches = {load.batch: found for load, found in wrong if found and load.batch is not None}
        if batches:
            self._place_again(batches)
        for load, found in wrong:
            if found and load.write is not None:
                load.write()
        self._weights.forget()
        self.check()

    @property
    def parts(self) -> list[Range]:
        """What was written, in the parts that `repair` loads again, with the host's sums."""
        return [one for load in self._loads for one in load.ranges]

    def damaged(self) -> list[Range]:
        """The parts whose sums on the boards are not the host's."""
        return [one for _, found in self._wrong_loads() for one in found]

    def _wrong_loads(self) -> list[tuple[_Load, list[Range]]]:
        """Loads with damaged parts. Parts are summed only where a whole range is wrong."""
        damaged = {id(one) for one in self.ranges if self._damaged(one)}
        if not damaged:
            return []
        return [
            (load, [one for one in load.ranges if self._damaged(one)])
            for load in self._loads
            if any(id(self._whole(one)) in damaged for one in load.ranges)
        ]

    def _place_again(self, batches: Mapping[int, Sequence[Range]]) -> None:
        """Runs the tasks of these batches that write to the banks of the damaged ranges."""
        scratch = Scratch(self._threads)
        for number, batch in enumerate(_batches(self._tasks(), self._batch_bytes)):
            found = batches.get(number, ())
            self._cluster.place([t for t in batch if any(_touches(t, r) for r in found)], scratch)
            if number == max(batches):
                return

    def _damaged(self, one: Range) -> bool:
        return self._cluster.checksum(one.board, one.bank, one.offset, one.bytes) != one.crc

    def _whole(self, part: Range) -> Range:
        """The range of `ranges` that a part was joined into."""
        return next(
            one
            for one in self.ranges
            if (one.board, one.bank) == (part.board, part.bank)
            and one.offset <= part.offset < one.offset + one.bytes
        )

    def _write_load(self, write: Callable[[], list[Range]]) -> None:
        written = write()
        if written:  # most matrices have no tables
            self._loaded(_Load(written, write=write))

    def _loaded(self, load: _Load) -> None:
        self._loads.append(load)
        self._note([replace(one) for one in load.ranges])

    def _load_tables(self, board: BoardPlan, matrix: MatrixPlacement) -> list[Range]:
        """Writes the computed tables that the matmul reads in addition to its weights."""
        spec = matrix.spec
        written: list[Range] = []
        if spec.scales is not None:
            raw = joined([scale_table(self._weights, one) for one in matrix.of_experts])
            written.append(self._write(board, board.tables[spec.scales], raw))
        elif spec.experts and spec.bias is not None:
            raw = joined([bias_row(self._weights, one) for one in matrix.of_experts])
            written.append(self._write(board, board.tables[spec.bias], raw))
        if spec.permutation is not None:
            table = board.tables[spec.permutation]
            raw = order_table(self._weights, matrix, table)
            written.append(self._write(board, table, raw))
        return written

    def _write(self, board: BoardPlan, placed: TablePlacement, raw: Bytes) -> Range:
        self._cluster.write(board.board, placed.bank, placed.offset, raw)
        return Range(board.board, placed.bank, placed.offset, raw.nbytes, crc32(raw))

    def check(self) -> None:
        """Compares each range with the board's own sum; TransportError names the first that
        differs. Nothing is written again: damaged memory may be damaged again."""
        for placed in self.ranges:
            found = self._cluster.checksum(placed.board, placed.bank, placed.offset, placed.bytes)
            if found != placed.crc:
                bank = self._plan.board.bank_name(placed.bank)
                raise TransportError(
                    f"board {placed.board} bank {bank}: checksum of {mib(placed.bytes)} at "
                    f"offset {placed.offset:#x} is {found:#010x}, expected {placed.crc:#010x}; the "
                    "weights on the board are damaged, load them again and check the board's memory"
                )

    def _tasks(self) -> Iterator[PackTask]:
        """All stored tensors, in tasks of at most about a batch. Boards alternate within a tensor:
        their shares lie in the same pages of the file, which are then mapped once."""
        boards = self._plan.boards
        for name in dict.fromkeys(name for board in boards for name in board.matrices):
            yield from _alternate(
                self._matrix_tasks(board, board.matrices[name])
                for board in boards
                if name in board.matrices
            )
        for name in dict.fromkeys(name for board in boards for name in board.tables):
            yield from _alternate(
                self._table_tasks(board, board.tables[name])
                for board in boards
                if name in board.tables and not board.tables[name].spec.computed
            )

    def _matrix_tasks(self, board: BoardPlan, placed: MatrixPlacement) -> Iterator[PackTask]:
        for one in placed.of_experts:
            yield from self._one_matrix_tasks(board, one)

    def _one_matrix_tasks(self, board: BoardPlan, placed: MatrixPlacement) -> Iterator[PackTask]:
        tiles = -(-placed.n // abi.BLOCK_N)
        if not placed.spec.streamed:
            step = max(1, self._batch_bytes // (placed.k * abi.BLOCK_N))
            yield from self._part_tasks(board, placed, step, partial(self._tokens, board))
        elif placed.spec.format.weights.columns is None and self._copied(placed.parts):
            step = max(1, self._batch_bytes // (placed.k * abi.BLOCK_N * COPIED_BYTES))
            yield from self._part_tasks(board, placed, step, self._copy)
        elif placed.spec.format.weights.columns is None:
            parts = self._parts(placed.parts)
            whole = _task(board, placed, range(tiles), parts, None)
            step = self._units(placed.k * abi.BLOCK_N, parts)
            for first in range(0, tiles, step):
                yield replace(whole, first=first, count=min(step, tiles - first))
        else:
            step = max(1, QUANTIZED_BYTES // (placed.k * abi.BLOCK_N))
            yield from self._part_tasks(board, placed, step, self._weights.part)

    def _tokens(self, board: BoardPlan, tensor: str, start: int, stop: int) -> PackPart:
        """The board's columns of rows of the token table, which are in blocks."""
        return self._weights.stored(tensor).block_rows(board.share.embed, start, stop)

    def _part_tasks(
        self, board: BoardPlan, placed: MatrixPlacement, step: int, read: ReadPart
    ) -> Iterator[PackTask]:
        """Tasks of `step` column tiles, each with only its own columns."""
        tiles = -(-placed.n // abi.BLOCK_N)
        for first in range(0, tiles, step):
            now = range(first, min(tiles, first + step))
            found = tuple(tile_parts(read, placed, now))
            yield _task(board, placed, now, found, first * abi.BLOCK_N)

    def _table_tasks(self, board: BoardPlan, placed: TablePlacement) -> Iterator[PackTask]:
        spec = placed.spec
        if self._copied(spec.parts):
            yield from self._copied_table_tasks(board, placed)
            return
        parts = self._parts(spec.parts)
        whole = max((part.data.shape[-1] for part in parts), default=1)  # of a row, by all boards
        step = self._units(max(spec.columns, whole), parts)
        for first in range(0, spec.rows, step):
            yield PackTask(
                board.board, parts, spec.rows, spec.columns, first, min(step, spec.rows - first),
                placed.bank, placed.offset, row_bytes=spec.row_bytes,
            )  # fmt: skip

    def _copied_table_tasks(self, board: BoardPlan, placed: TablePlacement) -> Iterator[PackTask]:
        """Each task has a table of its own: those rows that it places."""
        spec = placed.spec
        stored = [(self._weights.stored(part.tensor), part) for part in spec.parts if part.width]
        width = max(one.array.shape[-1] for one, _ in stored)
        step = max(1, self._batch_bytes // (width * COPIED_BYTES))
        for first in range(0, spec.rows, step):
            count = min(step, spec.rows - first)
            parts = tuple(
                _part(one.rows(first, count) if one.array.ndim > 1 else one, part.start, part.width)
                for one, part in stored
            )
            yield PackTask(
                board.board, parts, count, spec.columns, 0, count, placed.bank,
                placed.offset + first * spec.row_bytes, row_bytes=spec.row_bytes,
            )  # fmt: skip

    def _copied(self, parts: tuple[Part, ...]) -> bool:
        """Whether one of the tensors is not read as the file stores it."""
        found = (self._weights.stored(part.tensor) for part in parts if part.width)
        return any(one.copied and not one.in_blocks for one in found)

    def _copy(self, tensor: str, start: int, stop: int) -> PackPart:
        return _part(self._weights.stored(tensor), start, stop - start)

    def _units(self, elements: int, parts: tuple[PackPart, ...]) -> int:
        """Tiles or rows, of `elements` elements each, per batch."""
        return max(1, self._batch_bytes // (elements * max(part.data.itemsize for part in parts)))

    def _parts(self, parts: tuple[Part, ...]) -> tuple[PackPart, ...]:
        return tuple(
            _part(self._weights.stored(part.tensor), part.start, part.width)
            for part in parts
            if part.width
        )

    def _rope(self, name: str) -> npt.NDArray[np.float32]:
        if name not in self._ropes:
            tables = [b.tables[name] for b in self._plan.boards if name in b.tables]
            rows = max(table.spec.rows for table in tables)
            self._ropes[name] = rope_table(self._plan.config, rows, name == "rope_local")
        return self._ropes[name]

    def _load_rope(self, board: BoardPlan, placed: TablePlacement) -> list[Range]:
        """Writes a RoPE table, which is computed, in chunks of a batch."""
        table = self._rope(placed.spec.name)
        rows, row_bytes = placed.spec.rows, placed.spec.row_bytes
        step = max(1, BATCH_BYTES // row_bytes)
        written = []
        for start in range(0, rows, step):
            chunk = table[start : min(rows, start + step)]
            raw = pack_rows(chunk.reshape(len(chunk), -1), row_bytes).reshape(-1)
            offset = placed.offset + start * row_bytes
            self._cluster.write(board.board, placed.bank, offset, raw)
            crc = crc32(raw)
            written.append(Range(board.board, placed.bank, offset, raw.nbytes, crc))
        return written

    def _load_slopes(self, board: BoardPlan, placed: TablePlacement) -> list[Range]:
        """Writes slope and factor of the board's query heads, which are computed."""
        heads = board.share.q_heads
        rows = slope_table(self._plan.config)[heads.start : heads.stop].reshape(1, -1)
        raw = pack_rows(rows, placed.spec.row_bytes).reshape(-1)
        return [self._write(board, placed, raw)]

    def _load_sinks(self, board: BoardPlan, placed: TablePlacement) -> list[Range]:
        """Writes the sinks of the board's query heads as records of slopes."""
        heads = board.share.q_heads
        rows = np.zeros((len(heads), 2), np.float32)
        rows[:, 0] = self._weights.vector(placed.spec.name)[heads.start : heads.stop]
        raw = pack_rows(rows.reshape(1, -1), placed.spec.row_bytes).reshape(-1)
        return [self._write(board, placed, raw)]

    def _load_recurrence(self, board: BoardPlan, placed: TablePlacement) -> list[Range]:
        """Writes the weights of a layer's recurrence."""
        name = placed.spec.name.removesuffix(".table")
        raw = recurrence_table(self._weights, self._plan.config, board.share, name)
        return [self._write(board, placed, raw)]

    def _load_wide(self, board: BoardPlan, placed: TablePlacement) -> list[Range]:
        """Writes a vector of the model in FP32."""
        (part,) = placed.spec.parts
        row = self._weights.vector(part.tensor)[None, part.start : part.stop]
        raw = pack_rows(row.astype("<f4"), placed.spec.row_bytes).reshape(-1)
        return [self._write(board, placed, raw)]

    def _note(self, written: list[Range]) -> None:
        """Records written ranges, merging adjacent ones, and reports progress."""
        for new in written:
            last = self._last.get((new.board, new.bank))
            self._done += new.bytes
            if last is None or not last.join(new):
                self._last[new.board, new.bank] = new
                self.ranges.append(new)
        if self._progress is not None:
            self._progress(self._done, self._total)


def _part(stored: Stored, start: int, count: int) -> PackPart:
    """Outputs start .. start+count-1 of a tensor."""
    if stored.in_blocks:
        return stored.block_part(start, count)
    array, first = stored.part(start, count)
    return PackPart(stored.label, array, stored.kind, stored.axes, first, count)


def _task(
    board: BoardPlan,
    placed: MatrixPlacement,
    tiles: range,
    parts: tuple[PackPart, ...],
    column: int | None,
) -> PackTask:
    """These column tiles of a matrix; `parts` are its columns from `column` on, or all."""
    return PackTask(
        board.board, parts, placed.k, placed.n, tiles.start, len(tiles), placed.bank_first,
        placed.weight_line * abi.LINE_BYTES, placed.bank_count, placed.merge, placed.first,
        weight_type=placed.spec.format.weight_type, column=column,
    )  # fmt: skip


def _touches(task: PackTask, damaged: Range) -> bool:
    """Whether a task writes to the board and bank of a damaged range."""
    banks = range(task.bank, task.bank + task.bank_count)
    return task.board == damaged.board and damaged.bank in banks


def _alternate(boards: Iterable[Iterator[PackTask]]) -> Iterator[PackTask]:
    """The first task of each board, then the second of each."""
    for tasks in zip_longest(*boards):
        yield from (task for task in tasks if task is not None)


def _batches(tasks: Iterator[PackTask], limit: int) -> Iterator[list[PackTask]]:
    """Groups tasks into batches that map at most `limit` bytes of the files."""
    batch: list[PackTask] = []
    size = 0
    for task in tasks:
        reads = _reads(task) + len(task.parts) * AROUND_BYTES
        if batch and size + reads > limit:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += reads
    if batch:
        yield batch


def _reads(task: PackTask) -> int:
    """Max bytes of the files that a task reads."""
    unit = task.n if task.row_bytes else task.k * abi.BLOCK_N
    floats = all(part.kind in RAW_TYPES for part in task.parts)
    element = max(part.data.itemsize for part in task.parts) if floats else 1
    return task.count * unit * element
