"""The hardware source of this repository as a target: units of overlays/rtl on one board, whose
cycles are those of its simulation (card_costs.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.boards import load_board
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_host.overlay import load_overlay
from lora_host.sim import MEMORY_NS
from lora_lab.timing import step as steps
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_step import card_step_of
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.facts import Draft, board_facts, drafts
from lora_lab.timing.fit import fit
from lora_lab.timing.list_ops import ListTiming
from lora_lab.timing.machine import machine_of_overlay
from lora_lab.timing.ops import DISPATCH
from lora_lab.timing.report import Roofs, Totals
from lora_sdk.compile.lower import lower
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.placement import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lora_lab.timing.ops import Op
    from lora_lab.timing.schedule import Timeline
    from lora_sdk.compile.isa import Command
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

CHANNELS = "channels-u280"
SOURCE_TARGETS = {"source-u280": "lora_w4a8_u280", CHANNELS: "lora_channels_u280"}
"""Names as designs, and the overlay whose clock, banks and lists they have."""
ONCHIP = 7  # cycles from a read of the on-chip buffer to its line: axi/line_ports.sv
LINE_RATE = 0.75  # lines a cycle that a bank of HBM gives, as the wide card's
KV: dict[str, KvKind] = {"source-u280": "fp16", CHANNELS: "int8"}
"""Of a model in FP16: as a layer, and as a whole token, were simulated."""
SOURCE_LANES = 32  # FP16 lanes of overlays/rtl/card/card.sv and of vendor/card_kernel.sv


def source_card(plan: Plan, rank: int, commands: Sequence[Command]) -> CardTiming:
    """The list of the board at `rank` on the card that the hardware source is, with channels where
    the overlay places columns."""
    rate = LINE_RATE if plan.overlay.channels else 1.0
    onchip = ONCHIP if plan.overlay.channels else None
    costs = replace(card_costs(), lanes=SOURCE_LANES, line_rate=rate)
    latency = MEMORY_NS * 1e-9 * plan.overlay.clock_hz
    return CardTiming(plan, rank, commands, latency, costs, onchip)


class SourceTarget:
    """W4A8 in groups of 128 where K allows, lm_head in INT8, K and V as KV, unless the model is
    quantized. `name`: of SOURCE_TARGETS, or an overlay with channels, K and V then as `lora plan`
    has them."""

    def __init__(self, name: str, config: ModelConfig, boards: int) -> None:
        """RequestError: several boards, whose waits for each other the costs leave out."""
        if boards != 1:
            raise RequestError(
                f"design {name} on {counted(boards, 'board')}: its cycles are simulated on one; "
                "use --boards 1"
            )
        overlay = load_overlay(SOURCE_TARGETS.get(name, name))
        notes = ["modelled", "by cycles of the units' simulation; no card has run this source"]
        port, peak = float(abi.LINE_BYTES * overlay.clock_hz), board_facts(overlay.board.name)
        if overlay.channels:
            port *= overlay.channels * LINE_RATE
            notes.append(
                f"{overlay.channels} channels, each with {LINE_RATE:g} of a line a cycle, "
                f"assumed: {port / 1e9:g} GB/s of the board's {peak.bytes_per_second / 1e9:g}; "
                "attention units have ports of their own, the others share one, of a line a cycle "
                "each; refresh, and waits for each other at a bank, are not charged"
            )
        else:
            notes.append(
                f"its memory, the roof here, is one port of a line a cycle: {port / 1e9:g} GB/s of "
                f"the board's {peak.bytes_per_second / 1e9:g}"
            )
        found = fit(CHANNELS if overlay.channels else name)
        notes.append(
            f"by what is counted it {found.verdict()} (lora lab model --resources); not counted: "
            f"{'; '.join(found.not_counted)}"
        )
        if config.quantization is None:
            config = quantized_as(config, overlay.precision)
            assert config.quantization is not None
            kind = KV.get(name, config.quantization.kv)
            config = replace(config, quantization=replace(config.quantization, kv=kind))
            title = "INT8 by head" if kind == "int8-heads" else kind.upper()
            notes.append(
                f"the model is in FP16: timed as W4A8, lm_head in INT8, K and V in {title}"
            )
        plan = make_plan(config, overlay, load_board(overlay.board.name), 1)
        self.name, self.board, self.boards = name, overlay.board.name, 1
        self.notes: tuple[str, ...] = tuple(notes)
        assert config.quantization is not None
        self.precision, self.small_operations_fitted = config.quantization.scheme.upper(), False
        self.draft: Draft | None = drafts()["longspec"]
        self.clock_hz, self.row_limit = float(overlay.clock_hz), plan.row_limit
        commands = lower(config, plan, 0, unit_scales(config))
        self._lists = ListTiming(machine_of_overlay(overlay), plan, 0, commands)
        self._card = source_card(plan, 0, commands)
        products = 128 * self.clock_hz * max(1, overlay.channels)  # a line of weights a cycle
        self.roofs = Roofs(port, products, 0.0)

    def decode(self, context: int) -> Totals:
        """One token that attends to `context` positions."""
        return self._run(steps.decode(context))

    def verify(self, rows: int, context: int) -> Totals:
        """A tree of `rows` rows over `context` positions."""
        assert self.draft is not None
        return self._run(steps.verify(rows, context, max(1, round(self.draft.aat(rows, context)))))

    def prefill(self, length: int) -> Totals:
        """A prompt of `length` tokens."""
        totals = Totals()
        for shape in steps.prefill_steps(length, self.row_limit):
            totals.add(self._run(shape))
        return totals

    def _run(self, shape: steps.StepShape) -> Totals:
        """Cycles by the card's costs, bytes of the same list."""
        from lora_lab.timing.target import totals_of

        ops: list[Op] = self._lists.ops(shape)
        step = card_step_of(shape)
        found, besides = self._card.step(step), self._card.besides(step)
        timeline: Timeline = replace(
            found.timeline, cycles=found.cycles, by={**found.timeline.by, DISPATCH: besides}
        )
        return totals_of(ops, timeline, self.clock_hz)
