"""Moves K and V between the host and the boards' pages.

What is written is compared with the boards' own checksums before anything refers to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lora_host.errors import TransportError
from lora_host.placing import Range, crc32
from lora_sdk.kv.kv_arrays import KvArrays, joined
from lora_sdk.kv.kv_blocks import Bytes, pack, unpack
from lora_sdk.kv.pages import PAGE_POSITIONS
from lora_sdk.plan.kv import KvLayout

if TYPE_CHECKING:
    from lora_host.cluster import Cluster
    from lora_sdk.plan.model_plan import BoardPlan, Plan

CHUNK_BYTES = 32 << 20  # packed at once


class Placed(Protocol):
    """A model on boards. Both change where boards are lost."""

    plan: Plan
    cluster: Cluster


class KvTransfer:
    """K and V of pages of one opened model. Arrays are in the boards' column order."""

    def __init__(self, opened: Placed) -> None:
        self._opened = opened

    def place(self, pages: Sequence[int], kv: KvArrays) -> None:
        """Write all layers to `pages` and compare the boards' checksums."""
        self.check(self.write(pages, kv))

    def write(
        self,
        pages: Sequence[int],
        kv: KvArrays,
        first_layer: int = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> list[Range]:
        """Write the layers of `kv` from `first_layer` on to `pages`, in logical order, of all
        boards, while they are `wanted`. Returns what was written. LoraError of the boards.

        Another thread may run steps that do not read the pages."""
        written: list[Range] = []
        layers = range(first_layer, first_layer + len(kv.k))
        for board in self._opened.plan.boards:
            if not board.share.kv_heads:
                continue
            held = self._opened.plan.config.planes_of(board.share.stage.layers)
            own_layers = range(max(layers.start, held.start), min(layers.stop, held.stop))
            if not own_layers:
                continue
            first = own_layers.start - first_layer
            own = _of_board(kv, range(first, first + len(own_layers)), board.share.kv_heads)
            local = range(own_layers.start - held.start, own_layers.stop - held.start)
            for at, count in _consecutive(pages, board.kv):
                if not wanted():
                    break
                blocks = pack(board.kv, of_pages(own, at, count), local)
                written += self._write_pages(board, pages[at], local, blocks)
        return written

    def check(self, written: Sequence[Range]) -> None:
        """Compare the boards' checksums of what was written. TransportError names the first that
        differs."""
        for one in written:
            found = self._opened.cluster.checksum(one.board, one.bank, one.offset, one.bytes)
            if found != one.crc:
                bank = self._opened.plan.board.bank_name(one.bank)
                raise TransportError(
                    f"board {one.board} bank {bank}: checksum of {one.bytes} B of K and V at "
                    f"offset {one.offset:#x} is {found:#010x}, expected {one.crc:#010x}; they were "
                    "damaged on their way, try again and check the board's memory"
                )

    def read_checked(self, pages: Sequence[int], positions: int) -> KvArrays:
        """As `read`; what came is compared with the boards' checksums. TransportError as for
        `check`."""
        ranges: list[Range] = []
        kv = self.read(pages, positions, ranges)
        self.check(ranges)
        return kv

    def read(
        self, pages: Sequence[int], positions: int, ranges: list[Range] | None = None
    ) -> KvArrays:
        """K and V of the first `positions` positions in `pages`, of all layers and heads. `ranges`
        receives what was read."""
        plan = self._opened.plan
        stages = [
            self._read_layers([b for b in plan.boards if b.share.stage == stage], pages, positions,
                              ranges)
            for stage in plan.stages
        ]  # fmt: skip
        return joined(stages, axis=0) if len(stages) > 1 else stages[0]

    def _read_layers(
        self,
        boards: Sequence[BoardPlan],
        pages: Sequence[int],
        positions: int,
        ranges: list[Range] | None,
    ) -> KvArrays:
        """The layers of the boards of a stage."""
        parts: dict[int, KvArrays] = {}  # by first head; copies of a head are equal
        for board in boards:
            heads, layout = board.share.kv_heads, board.kv
            known = max((start + part.k.shape[1] for start, part in parts.items()), default=0)
            if heads.stop <= known:
                continue
            chunks = [
                self._read_pages(board, pages[at], count, ranges)
                for at, count in _consecutive(pages, layout)
            ]
            blocks = np.concatenate(chunks) if chunks else _no_blocks(layout)
            own = unpack(layout, blocks, layout.layers, positions)
            skip = max(0, known - heads.start)
            every = range(layout.layers)
            parts[heads.start + skip] = _of_board(own, every, range(skip, len(heads)))
        return _joined([parts[start] for start in sorted(parts)])

    def _write_pages(
        self, board: BoardPlan, page: int, layers: range, blocks: Bytes
    ) -> list[Range]:
        """Write blocks of consecutive pages from `page` on: all layers as one range a bank."""
        layout = board.kv
        if len(layers) == layout.layers:
            whole = np.zeros((len(blocks), layout.page_stride, layout.block_bytes), np.uint8)
            whole[:, : blocks.shape[1]] = blocks
            flat = whole.reshape(-1, layout.block_bytes)[: len(blocks) * layout.page_stride - 1]
            return self._write_blocks(board, page, 0, flat)
        written = []
        for index, of_page in enumerate(blocks):
            written += self._write_blocks(board, page + index, layers.start, of_page)
        return written

    def _write_blocks(self, board: BoardPlan, page: int, layer: int, blocks: Bytes) -> list[Range]:
        written = []
        for bank, offset, which in board.kv.runs(page, layer, len(blocks)):
            data = np.ascontiguousarray(blocks[which]).reshape(-1)
            self._opened.cluster.write(board.board, bank, offset, data)
            written.append(Range(board.board, bank, offset, data.nbytes, crc32(data)))
        return written

    def _read_pages(
        self, board: BoardPlan, page: int, count: int, ranges: list[Range] | None
    ) -> Bytes:
        """Blocks of consecutive pages, without the gaps between pages."""
        layout = board.kv
        blocks = np.zeros((count * layout.page_stride, layout.block_bytes), np.uint8)
        used = count * layout.page_stride - 1
        for bank, offset, which in layout.runs(page, 0, used):
            data = np.empty((len(range(used)[which]), layout.block_bytes), np.uint8)
            self._opened.cluster.read_into(board.board, bank, offset, data.reshape(-1))
            blocks[:used][which] = data
            if ranges is not None:
                ranges.append(Range(board.board, bank, offset, data.nbytes, crc32(data)))
        by_page = blocks.reshape(count, layout.page_stride, layout.block_bytes)
        return by_page[:, : layout.layers * layout.heads * 2]


def _consecutive(pages: Sequence[int], layout: KvLayout) -> Iterator[tuple[int, int]]:
    """(index, count) of runs of consecutive page numbers in the same banks, each packed at once."""
    start, limit = 0, _chunk_pages(layout)
    for index in range(1, len(pages) + 1):
        ends = (
            index == len(pages)
            or pages[index] != pages[index - 1] + 1
            or (layout.spill is not None and pages[index] == layout.spill.first_page)
        )
        if ends or index - start == limit:
            yield start, index - start
            start = index


def _chunk_pages(layout: KvLayout) -> int:
    return max(1, CHUNK_BYTES // (layout.page_stride * layout.block_bytes))


def _no_blocks(layout: KvLayout) -> Bytes:
    return np.empty((0, layout.layers * layout.heads * 2, layout.block_bytes), np.uint8)


def _of_board(kv: KvArrays, layers: range, heads: range) -> KvArrays:
    return _sliced(kv, (slice(layers.start, layers.stop), slice(heads.start, heads.stop)))


def of_pages(kv: KvArrays, first: int, count: int) -> KvArrays:
    """The positions of `count` pages from page `first` on."""
    positions = slice(first * PAGE_POSITIONS, (first + count) * PAGE_POSITIONS)
    return _sliced(kv, (slice(None), slice(None), positions))


def _sliced(kv: KvArrays, index: tuple[slice, ...]) -> KvArrays:
    def cut(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return array[index] if array is not None and array.ndim > 1 else None

    return KvArrays(kv.kind, kv.k[index], kv.v[index], cut(kv.k_scales), cut(kv.v_scales))


def _joined(parts: Sequence[KvArrays]) -> KvArrays:
    """Heads of several boards, one after another."""
    scales: list[npt.NDArray[Any] | None] = [None, None]
    if parts[0].k_scales is not None:
        scales = [
            np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in ("k_scales", "v_scales")
        ]
    k = np.concatenate([part.k for part in parts], axis=1)
    v = np.concatenate([part.v for part in parts], axis=1)
    return KvArrays(parts[0].kind, k, v, scales[0], scales[1])
