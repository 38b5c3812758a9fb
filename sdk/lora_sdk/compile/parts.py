"""What the layers of every model share: addresses, matrix products, gathers, norms, taps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_sdk.compile.builder import Builder, Event
from lora_sdk.compile.isa import NO_LAYER, Matrix, MoveRows, Vector, float_bits
from lora_sdk.model.quantization import ActivationScales
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


class Lowering:
    """The state of lowering one board's list. Commands without columns on this board are left out;
    what would have waited for them waits for what they would have waited for."""

    def __init__(
        self, config: ModelConfig, plan: Plan, rank: int, scales: ActivationScales | None = None
    ) -> None:
        self.config = config
        self.scales = scales or ActivationScales()
        self.plan = plan
        self.board = plan.boards[rank]
        self.builder = Builder()
        self.alone = plan.size == 1
        self._collective = 0

    # Addresses.

    def buffer(self, name: str) -> OnchipBuffer:
        """A whole on-chip buffer."""
        return self.board.onchip[name]

    def local(self, name: str, columns: range, size: int = FP16_BYTES) -> OnchipBuffer:
        """This board's columns, of `size` bytes each, in place in a buffer that a gather fills."""
        whole = self.board.onchip[name]
        return OnchipBuffer(whole.offset + columns.start * size, whole.stride)

    def stream(self) -> OnchipBuffer:
        """The rows that run through the model from block to block, this board's columns: the
        residual, or with norms after the sums (post-LayerNorm) the normalised input itself."""
        if self.config.norm_first:
            return self.buffer("residual")
        return self.local("input", self.board.share.hidden)

    @staticmethod
    def address(letter: str, buffer: OnchipBuffer) -> dict[str, int]:
        """Offset and stride fields of operand `letter`."""
        return {f"{letter}_offset": buffer.offset, f"{letter}_stride": buffer.stride}

    def table_a(self, name: str) -> dict[str, int]:
        """Bank and line of a table as a vector command's operand a; nothing where it is absent."""
        return self._table("a", name)

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
        if not self.config.position_rows:
            return {}
        return {**self.table_b("embed.position"), "extra": self.config.position_offset}

    # Commands.

    def gather(self, after: Event | None, name: str, segments: bool = True) -> Event | None:
        """The next collective of the plan, on buffer `name`; nothing on a single board."""
        if self.alone:
            return after
        collective = self.plan.collectives[self._collective]
        buffer = self.buffer(name)
        event = self.builder.gather(
            after,
            segments,
            what=f"gather {collective.what}",
            flags=abi.FLAG_SELECTED if collective.selected else 0,
            offset=buffer.offset,
            stride=buffer.stride,
            columns=collective.columns,
            share_unit=collective.share_unit,
            segment_unit=collective.segment_unit,
            element_bytes=collective.element_bytes,
            collective=self._collective,
        )
        self._collective += 1
        return event

    def check_collectives(self) -> None:
        """Every collective of the plan has been used, so that its link bytes are the list's."""
        expected = 0 if self.alone else len(self.plan.collectives)
        if self._collective != expected:
            raise AssertionError(f"{self._collective} gathers, the plan has {expected}")

    def matrix(
        self,
        after: Event | None,
        name: str,
        source: str,
        target: OnchipBuffer,
        flags: int = 0,
        y_bank: int = abi.BANK_ONCHIP,
        y_type: int = abi.FP16,
        **adapter: int,
    ) -> Event:
        """target = source * matrix `name` of this board (* its scales, + its bias, + what the rows'
        adapters add: `adapter` has the fields)."""
        placed = self.board.matrices[name]
        spec = placed.spec
        table = self.board.tables[spec.table] if spec.table is not None else None
        bias = {} if table is None else {"bias_bank": table.bank, "bias_line": table.line}
        if spec.scales is not None and spec.bias is None:
            flags |= abi.FLAG_NO_BIAS
        return self.builder.emit(
            Matrix,
            after,
            what=f"matrix {name.rpartition('.')[2]}",
            flags=flags,
            weight_type=spec.format.weight_type,
            bank_first=placed.bank_first,
            bank_count=placed.bank_count,
            merge=placed.merge,
            weight_line=placed.weight_line,
            first=placed.first,
            k=placed.k,
            n=placed.n,
            x_bank=abi.BANK_ONCHIP,
            y_bank=y_bank,
            y_type=y_type,
            **self.address("x", self.buffer(source)),
            **self.address("y", target),
            **bias,
            **adapter,
        )

    def norm(
        self,
        after: Event | None,
        name: str,
        source: OnchipBuffer,
        target: OnchipBuffer,
        flags: int = 0,
    ) -> Event | None:
        """target = norm `name` of source, local columns; sums of all boards in between (III.B)."""
        layer_norm = self.config.norm == "layernorm"
        kind = "layer norm" if layer_norm else "rms norm"
        hidden = self.board.share.hidden
        fields: dict[str, Any] = {
            "flags": flags,
            "columns": len(hidden),
            "first": hidden.start,
            "extra": self.config.hidden,
            **self.address("x", source),
            **self.address("z", self.buffer("sums")),
        }
        if hidden:
            after = self.builder.emit(
                Vector,
                after,
                what=f"{kind} sums",
                op=abi.VEC_LN_SUMS if layer_norm else abi.VEC_RMS_SUMS,
                **fields,
            )
        after = self.gather(after, "sums", segments=False)
        if not hidden:
            return after
        return self.builder.emit(
            Vector,
            after,
            what=kind,
            op=abi.VEC_LN_APPLY if layer_norm else abi.VEC_RMS_APPLY,
            scalar=float_bits(self.config.norm_eps),
            **fields,
            **self.address("y", target),
            **self.table_a(f"{name}.gamma"),
            **self.table_b(f"{name}.beta"),
        )

    def residual(self, after: Event | None, target: OnchipBuffer) -> Event | None:
        """target = stream + product, local columns."""
        hidden = self.board.share.hidden
        if not hidden:
            return after
        return self.builder.emit(
            Vector,
            after,
            what="residual",
            op=abi.VEC_RESIDUAL,
            columns=len(hidden),
            first=hidden.start,
            **self.address("x", self.stream()),
            **self.address("y", target),
            **self.address("z", self.buffer("product")),
        )

    def tap(self, layer: int, after: Event | None) -> None:
        """Copies the input of `layer` to the results where the plan wants it."""
        hidden = self.board.share.hidden
        if layer not in self.plan.hidden_taps or not hidden:
            return
        control, stream = self.board.control, self.stream()
        for index, tapped in enumerate(self.plan.hidden_taps):
            if tapped == layer:
                self.builder.emit(
                    MoveRows,
                    after,
                    what="hidden tap",
                    x_bank=abi.BANK_ONCHIP,
                    y_bank=self.plan.overlay.control_bank,
                    bytes=len(hidden) * FP16_BYTES,
                    y_offset=control.hidden_offset + index * control.hidden_tap_bytes,
                    y_stride=control.hidden_stride,
                    **self.address("x", stream),
                )

    def leave_layers(self) -> None:
        """What follows belongs to no block."""
        self.builder.layer = NO_LAYER
