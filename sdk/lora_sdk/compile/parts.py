"""Lowering steps that all operations share: addresses, gathers, taps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile, islice
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.compile.builder import Builder, Event
from lora_sdk.compile.isa import NO_LAYER, MoveRows
from lora_sdk.model.operations import Buffer, Matmul, Operation, Rope, StoreKv
from lora_sdk.model.quantization import ActivationScales, kv_of
from lora_sdk.plan.collectives import Collective
from lora_sdk.plan.onchip import PASSED, OnchipBuffer
from lora_sdk.plan.partition import local_columns
from lora_sdk.plan.tensors import FP16_BYTES, TOKENS

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


class Lowering:
    """The state of lowering one board's list. Commands without columns on this board are omitted.
    Their successors then wait for the event that the omitted command would have waited for."""

    def __init__(
        self, config: ModelConfig, plan: Plan, rank: int, scales: ActivationScales | None = None
    ) -> None:
        self.config = config
        self.scales = scales or ActivationScales()
        self.plan = plan
        self.rank = rank
        self.board = plan.boards[rank]
        self.stage = self.board.share.stage
        self.block = self.board.share.block(config)
        self.adapted = {matmul.name: number for number, matmul in enumerate(self.block.adapted)}
        self.builder = Builder()
        self.moved: Event | None = None  # the DMA unit's last KV_COMMIT or copy of results
        self.alone = plan.stage_boards == 1
        self.queries_last = plan.overlay.channels > 0 and kv_of(config).static
        """Rows of q are rotated and quantized behind KV_STORE, which does not wait for them."""
        self.late_rope: Callable[[], Event] | None = None  # of q, until then
        self.queries: Event | None = None  # of q's own matmul, behind that of k and v
        self._gathers = list(_gathers(plan, rank))
        self._gathered = 0

    def kv_layer(self, layer: int) -> int:
        """The first of a layer's planes in the board's cache."""
        return len(self.config.planes_of(range(self.stage.layers.start, layer)))

    # Addresses.

    def buffer(self, name: str) -> OnchipBuffer:
        """A whole on-chip buffer."""
        return self.board.onchip[name]

    def columns(self, buffer: Buffer) -> range:
        """This board's columns of a buffer."""
        return local_columns(self.config, self.board.share, buffer)

    def own(self, buffer: Buffer) -> OnchipBuffer:
        """The rows of this board's columns: within the whole rows of a gathered buffer, in the
        control bank for results."""
        if buffer.results:
            return OnchipBuffer(self.board.control.logits_offset, self.board.control.logits_stride)
        if buffer.gathered:
            return self.within(buffer.name, self.columns(buffer))
        return self.buffer(buffer.name)

    def bank(self, buffer: Buffer) -> int:
        """The bank in which a buffer lies."""
        return self.plan.overlay.control_bank if buffer.results else abi.BANK_ONCHIP

    def within(self, name: str, columns: range, size: int = FP16_BYTES) -> OnchipBuffer:
        """Some columns, of `size` bytes each, within a buffer of whole rows."""
        whole = self.board.onchip[name]
        return OnchipBuffer(whole.offset + columns.start * size, whole.stride)

    def queries_of(self, matmul: Matmul) -> int:
        """Columns of q that are multiplied by themselves, behind those of k and v: where all banks
        have as many of its tiles, and its rows are stored next, rotated at most. 0: none."""
        q = len(self.board.share.q_heads) * self.config.head_dim
        whole = self.queries_last and q % (abi.BLOCK_N * self.plan.overlay.channels) == 0
        return q if whole and _stored_next(self.block.operations, matmul) else 0

    @staticmethod
    def address(letter: str, buffer: OnchipBuffer) -> dict[str, int]:
        """Offset and stride fields of operand `letter`."""
        return {f"{letter}_offset": buffer.offset, f"{letter}_stride": buffer.stride}

    def table_a(self, name: str) -> dict[str, int]:
        """Bank and line of a table as a vector command's operand a; empty if it is absent."""
        return self._table("a", name)

    def tokens(self) -> dict[str, int]:
        """The token table of EMBED: operand a, or a matrix in blocks."""
        if TOKENS in self.board.tables:
            return self.table_a(TOKENS)
        placed = self.board.matrices.get(TOKENS) or self.board.matrices["lm_head"]
        packed = placed.bank_count | placed.merge << 8 | placed.spec.format.weight_type << 16
        return {
            "flags": abi.FLAG_TOKEN_BLOCKS,
            "a_bank": placed.bank_first,
            "a_line": placed.weight_line,
            "x_offset": packed,
            "x_stride": placed.first,
        }

    def table_b(self, name: str) -> dict[str, int]:
        """The same as operand b."""
        return self._table("b", name)

    def _table(self, letter: str, name: str) -> dict[str, int]:
        table = self.board.tables.get(name)
        if table is None:
            return {}
        return {f"{letter}_bank": table.bank, f"{letter}_line": table.line}

    def positions(self) -> dict[str, int]:
        """The learned position table as operand b, with its row offset."""
        return {**self.table_b("embed.position"), "extra": self.config.position_offset}

    # Commands.

    @staticmethod
    def flags(operation: Operation) -> int:
        """Flags that every command of an operation has."""
        return abi.FLAG_SELECTED if operation.selected else 0

    def gather(
        self, after: Event | None, name: str, segments: bool = True, at: int = 0
    ) -> Event | None:
        """The next collective of this board, on buffer `name` from byte `at` of its rows on. A
        board that is alone has none but those between stages."""
        if self.alone and name != PASSED:
            return after
        number, collective = self._gathers[self._gathered]
        buffer = self.buffer(name)
        event = self.builder.gather(
            after,
            segments,
            what=f"gather {collective.what}",
            flags=abi.FLAG_SELECTED if collective.selected else 0,
            offset=buffer.offset + at,
            stride=buffer.stride,
            columns=collective.columns,
            share_unit=collective.share_unit,
            segment_unit=collective.segment_unit,
            element_bytes=collective.element_bytes,
            collective=number,
            span=self._span(collective),
        )
        self._gathered += 1
        return event

    def _span(self, collective: Collective) -> int:
        """enum lora_span, from this board's side."""
        span = collective.span
        if span is None:
            return abi.SPAN_ALL
        if span.owners == span.boards:
            return abi.SPAN_STAGE
        return abi.SPAN_TO_NEXT if self.rank < span.first + span.owners else abi.SPAN_FROM_PREVIOUS

    def pack(
        self, after: Event | None, what: str, source: OnchipBuffer, target: OnchipBuffer, size: int
    ) -> Event:
        """The first `size` bytes of the selected rows of `source`, one after another, to `target`.
        Rows are moved in order, to no later places, so both may be one buffer."""
        return self.builder.emit(
            MoveRows,
            after,
            what=what,
            flags=abi.FLAG_SELECTED | abi.FLAG_PACK,
            x_bank=abi.BANK_ONCHIP,
            y_bank=abi.BANK_ONCHIP,
            bytes=size,
            **self.address("x", source),
            **self.address("y", target),
        )

    def check_collectives(self) -> None:
        """Checks that all collectives of the plan, which counts link bytes, were lowered."""
        if self._gathered != len(self._gathers):
            raise AssertionError(f"{self._gathered} gathers, the plan has {len(self._gathers)}")

    def copy_out(
        self,
        after: Event | None,
        what: str,
        source: OnchipBuffer,
        columns: int,
        offset: int,
        stride: int,
        flags: int = 0,
    ) -> None:
        """Copies FP16 columns of the rows of `source` into the results; nothing for no columns."""
        if columns:
            self.moved = self.builder.emit(
                MoveRows,
                after,
                what=what,
                flags=flags,
                x_bank=abi.BANK_ONCHIP,
                y_bank=self.plan.overlay.control_bank,
                bytes=columns * FP16_BYTES,
                **self.address("x", source),
                **self.address("y", OnchipBuffer(offset, stride)),
            )

    def tap(self, layer: int, after: Event | None) -> None:
        """Copies the input of `layer` to the results if the plan has a tap there."""
        control, stream = self.board.control, self.own(self.block.stream)
        for index, tapped in enumerate(self.plan.hidden_taps):
            if tapped == layer:
                offset = control.hidden_offset + index * control.hidden_tap_bytes
                columns = len(self.board.share.hidden)
                self.copy_out(after, "hidden tap", stream, columns, offset, control.hidden_stride)

    def tap_final(self, source: Buffer, after: Event | None) -> None:
        """Copies the selected rows of lm_head's input to the results if the plan returns them."""
        if self.plan.final_states:
            control = self.board.control
            self.copy_out(
                after, "final states", self.own(source), len(self.columns(source)),
                control.final_offset, control.final_stride, abi.FLAG_SELECTED,
            )  # fmt: skip

    def leave_layers(self) -> None:
        """Marks the commands that follow as outside the layers."""
        self.builder.layer = NO_LAYER


def _gathers(plan: Plan, rank: int) -> Iterator[tuple[int, Collective]]:
    """The plan's collectives in which a board takes part, with their numbers."""
    for number, collective in enumerate(plan.collectives if plan.size > 1 else ()):
        if collective.span is None or rank in collective.span:
            yield number, collective


def _stored_next(operations: Iterable[Operation], matmul: Matmul) -> bool:
    """Whether k and v in the matmul's target are stored next, or after they are rotated."""
    behind = dropwhile(lambda operation: operation is not matmul, operations)
    following = (one for one in islice(behind, 1, None) if not isinstance(one, Rope))
    found = next(following, None)
    return isinstance(found, StoreKv) and found.source == matmul.target
