"""Places one board's data: weights first, then the KV cache, tables, spilled matrices and pages."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import PlacementError
from lora_host.naming import counted
from lora_sdk.model.operations import width
from lora_sdk.model.quantization import kv_of
from lora_sdk.plan.adapters import (
    AdapterLayout,
    AdapterOptions,
    bank_lines,
    h_columns,
    slot_chunks,
)
from lora_sdk.plan.banks import Banks, MatrixPlacement, Shelf, Stripes, TablePlacement, mib
from lora_sdk.plan.kv import KvLayout, SpilledPages
from lora_sdk.plan.model_plan import BankUse, Replica
from lora_sdk.plan.partition import Share
from lora_sdk.plan.tensors import (
    FP16_BYTES,
    FP32_BYTES,
    MatrixSpec,
    TableSpec,
    matrix_specs,
    shares_tokens,
    table_specs,
    token_matrix,
)

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


class BoardFit:
    """Places one share. Weights stream from the weight banks (HBM). Data that a step reads once and
    in small chunks lies in the spill banks (DDR), as in the paper's V.C, and so does what the
    weight banks have no room for: KV pages first, since a step reads every weight, but of the cache
    only what its sequences hold."""

    def __init__(
        self,
        config: ModelConfig,
        share: Share,
        banks: Banks,
        adapters: AdapterOptions | None = None,
    ) -> None:
        self._adapters = adapters or AdapterOptions()
        chunks = slot_chunks(config, share, self._adapters) if self._adapters.slots else 0
        self._chunks = chunks
        self._adapter_lines = bank_lines(self._adapters.slots * chunks, banks.weight_count)
        self.config = config
        self.share = share
        self.banks = banks
        self.matrices: dict[str, MatrixPlacement] = {}
        self.tables: dict[str, TablePlacement] = {}
        self._spilled: list[MatrixSpec] = []
        self._stripes = Stripes(banks)
        self._clear_shelves()

    def _clear_shelves(self) -> None:
        banks = self.banks
        self.control_shelf = Shelf(banks, banks.control, abi.CONTROL_PAGE)
        others = [Shelf(banks, bank) for bank in banks.spill if bank != banks.control]
        self._shelves = [*reversed(others), self.control_shelf]

    def trial(self) -> BoardFit:
        """The same weights in the weight banks, nothing in the others yet."""
        other = copy.copy(self)
        other.matrices, other.tables = dict(self.matrices), dict(self.tables)
        other._clear_shelves()
        return other

    def place_weights(self, reserved_pages: int) -> None:
        """Places weights in the weight banks as long as `reserved_pages` KV pages remain free.
        PlacementError where some do not fit and there are no spill banks."""
        reserved = self._kv(reserved_pages, 0, line=0).lines + self._adapter_lines
        for spec in matrix_specs(self.config, self.share):
            placed = self._stripes.place(spec, reserved)
            if placed is None:
                self._spilled.append(spec)
            else:
                self.matrices[spec.name] = placed
        if self._spilled and not self.banks.spill:
            raise self._no_spill(self._spilled[0])

    def kv_pages(self) -> int:
        """KV pages that fit after the weights."""
        return self._kv(0, 0, self._kv_line).capacity(self.banks.weight_lines)

    @property
    def _kv_line(self) -> int:
        """First line of the cache, after weights and adapter slots."""
        return self._stripes.end_line + self._adapter_lines

    def adapter_layout(self) -> AdapterLayout | None:
        """Where the slots lie, after the weights; None without slots."""
        if not self._adapters.slots:
            return None
        return AdapterLayout(
            slots=self._adapters.slots,
            chunks=self._chunks,
            bank_first=self.banks.weight_first,
            bank_count=self.banks.weight_count,
            line=self._stripes.end_line,
            columns=h_columns(self.config, self._adapters, self.share.boards),
            matrices=len(self.share.block(self.config).adapted),
        )

    def spill_pages(self) -> int:
        """KV pages that fit in the spill banks after all that lies there; 0 without such banks."""
        if not self.banks.spill:
            return 0
        lines = min(map(self.banks.usable, self.banks.spill)) // abi.LINE_BYTES
        return self._kv(0, 0, 0).pages_in(lines - self._spill_line, len(self.banks.spill))

    @property
    def _spill_line(self) -> int:
        """First line that is free in all spill banks."""
        ends = [shelf.end for shelf in self._shelves if shelf.bank in self.banks.spill]
        return -(-max(ends, default=0) // abi.LINE_BYTES)

    def kv_layout(self, pages: int, scratch_pages: int, first_spilled: int) -> KvLayout:
        """Where the cache lies: after the weights, at the same line of all weight banks, pages from
        `first_spilled` on after all else in the spill banks."""
        layout = self._kv(pages, scratch_pages, self._kv_line)
        if first_spilled >= pages:
            return layout
        if pages - first_spilled > self.spill_pages():
            more = layout.lines_of(pages - first_spilled, len(self.banks.spill))
            shelf = min(self._shelves, key=lambda shelf: shelf.free)
            raise self.banks.full("KV cache", shelf.bank, more * abi.LINE_BYTES, shelf.free)
        banks = self.banks.spill
        spill = SpilledPages(first_spilled, banks[0], len(banks), self._spill_line)
        return replace(layout, spill=spill)

    def _kv(self, pages: int, scratch_pages: int, line: int) -> KvLayout:
        return KvLayout(
            bank_first=self.banks.weight_first,
            bank_count=self.banks.weight_count,
            line=line,
            layers=len(self.config.planes_of(self.share.stage.layers)),
            heads=len(self.share.kv_heads),
            head_dim=self.config.head_dim,
            pages=pages,
            scratch_pages=scratch_pages,
            kind=kv_of(self.config).name,
        )

    def kv_full(self, requested_pages: int, fitting_pages: int) -> str:
        """Requested, free and capacity of the weight banks, for an error."""
        banks = self.banks
        requested, fitting = self._kv(requested_pages, 0, 0), self._kv(max(0, fitting_pages), 0, 0)
        first, last = (
            banks.board.bank_name(banks.weight_first + index)
            for index in (0, banks.weight_count - 1)
        )
        capacity = banks.weight_lines * abi.LINE_BYTES * banks.weight_count
        return (
            f"KV cache does not fit on board {banks.rank}, banks {first}..{last}: requested "
            f"{mib(requested.bytes)}, free {mib(fitting.bytes)}, capacity {mib(capacity)}"
        )

    def place_tables(self, context: int) -> None:
        """Tables into the spill banks, the control bank last."""
        for spec in table_specs(self.config, self.share, context):
            self.tables[spec.name] = self._table(spec)

    def _table(self, spec: TableSpec) -> TablePlacement:
        for shelf in self._shelves[:-1]:
            if spec.rows * spec.row_bytes <= shelf.free - abi.LINE_BYTES:
                return shelf.table(spec)
        return self._shelves[-1].table(spec)

    def place_spilled(self) -> None:
        """Places matrices that did not fit in the weight banks, each in the emptiest spill bank."""
        for spec in self._spilled:
            shelf = max(self._shelves, key=lambda shelf: shelf.free)
            try:
                self.matrices[spec.name] = shelf.matrix(spec)
            except PlacementError as error:
                raise PlacementError(f"{error}, and the weight banks are full") from None

    def _no_spill(self, spec: MatrixSpec) -> PlacementError:
        """The error of a matrix that the weight banks have no room for, where no others take it."""
        banks, line = self.banks, abi.LINE_BYTES
        free = (banks.weight_lines - self._kv_line) * line * banks.weight_count
        last = banks.weight_first + banks.weight_count - 1
        return PlacementError(
            f"{spec.name} does not fit on board {banks.rank}, banks "
            f"{banks.board.bank_name(banks.weight_first)}..{banks.board.bank_name(last)}: "
            f"requested {mib(spec.bytes)}, free {mib(free)} for it and a KV cache, capacity "
            f"{mib(banks.weight_lines * line * banks.weight_count)}; overlay {banks.overlay.name} "
            "has no spill banks"
        )

    def arenas(self, kv: KvLayout) -> dict[int, int]:
        """Bytes to reserve in each bank, from offset 0 on."""
        banks = range(self.banks.weight_first, self.banks.weight_first + self.banks.weight_count)
        found = {bank: (kv.line + kv.lines) * abi.LINE_BYTES for bank in banks}
        found.update({shelf.bank: shelf.end for shelf in self._shelves if shelf.end})
        if kv.spill is not None:
            lines = kv.lines_of(kv.spilled_pages, kv.spill.bank_count)
            end = (kv.spill.line + lines) * abi.LINE_BYTES
            found.update(dict.fromkeys(self.banks.spill, end))
        return found

    def use(self, kv: KvLayout, control_end: int) -> tuple[BankUse, ...]:
        """Bytes of each bank by purpose, for the report."""
        line = abi.LINE_BYTES
        found = [
            BankUse(
                bank,
                weights=self._stripes.end_line * line,
                kv=kv.lines * line,
                tables=0,
                control=0,
                usable=self.banks.usable(bank),
                adapters=self._adapter_lines * line,
            )
            for bank in range(kv.bank_first, kv.bank_first + kv.bank_count)
        ]
        arenas = self.arenas(kv)
        for shelf in sorted(self._shelves, key=lambda shelf: shelf.bank):
            spilled = sum(
                matrix.placed_bytes
                for matrix in self.matrices.values()
                if matrix.spilled and matrix.bank_first == shelf.bank
            )
            control = control_end if shelf is self.control_shelf else 0
            tables = shelf.end - spilled - control
            pages = arenas.get(shelf.bank, shelf.end) - shelf.end
            found.append(
                BankUse(shelf.bank, spilled, pages, tables, control, self.banks.usable(shelf.bank))
            )
        return tuple(found)

    @property
    def _shares_tokens(self) -> bool:
        """Whether lm_head's blocks are the token table, too."""
        found = token_matrix(self.config, self.share)
        return found is not None and shares_tokens(self.config, self.share)

    def replicas(self) -> tuple[Replica, ...]:
        """Data on this board that is stored elsewhere too. A shared KV head belongs to the first
        board that owns one of its query heads. A tied lm_head repeats the embedding."""
        found: list[Replica] = []
        config, share = self.config, self.share
        group = config.heads // config.kv_heads
        shared = sum(1 for head in share.kv_heads if head * group < share.q_heads.start)
        if shared:
            size = sum(
                _column_bytes(self.matrices[matmul.name].spec) * shared * config.head_dim
                for matmul in share.block(config).matmuls
                for output in matmul.outputs
                if output.axis == "kv_heads"
            )
            found.append(
                Replica(
                    "k and v", f"{counted(shared, 'KV head')} shared with the board before", size
                )
            )
        routers = [
            self.matrices[matmul.name].bytes
            for matmul in share.block(config).matmuls
            if matmul.routes
        ]
        routers += [one.bytes for one in self.tables.values() if one.spec.kind == "wide"]
        if routers and share.rank:
            found.append(Replica("routers", "every board chooses the experts", sum(routers)))
        keys = [
            _column_bytes(self.matrices[matmul.name].spec) * width(config, output.axis)
            for matmul in share.block(config).matmuls
            for output in matmul.outputs
            if output.axis == "rope_key"
        ]
        if keys and share.rank:
            found.append(Replica("k_rope", "every board rotates the heads' shared key", sum(keys)))
        if config.tied and share.vocabulary and not self._shares_tokens:
            size = self.matrices["lm_head"].bytes
            found.append(Replica("lm_head", "tied to embed.token, which lies by column", size))
        for table in self.tables.values():
            if table.spec.kind == "rope":
                why = "every board holds the whole table"
                found.append(Replica(table.spec.name, why, table.bytes))
        return tuple(found)


def _column_bytes(spec: MatrixSpec) -> int:
    """Bytes of one column of a matrix, with its scale and bias."""
    scale = FP32_BYTES if spec.scales is not None else 0
    return spec.format.bytes(spec.k, 1) + scale + (FP16_BYTES if spec.bias else 0)
