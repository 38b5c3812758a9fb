"""Targets of timing: a design or an overlay, with a model, on a kind and number of boards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lora_host.errors import RequestError
from lora_host.naming import counted, did_you_mean
from lora_lab.timing import step as steps
from lora_lab.timing.adapter_ops import AdapterUse
from lora_lab.timing.counted_attention import Case, attention_note
from lora_lab.timing.designs import (
    ArrayDesign,
    Design,
    StreamDesign,
    design_names,
    facts_of,
    load_design,
    memory_note,
)
from lora_lab.timing.facts import Draft, drafts
from lora_lab.timing.fit import unbuilt_note
from lora_lab.timing.layout import Layout
from lora_lab.timing.machine import machine_of
from lora_lab.timing.ops import ADAPTER, ATTENTION, WEIGHTS, Op
from lora_lab.timing.overheads import overheads_of
from lora_lab.timing.report import Roofs, Totals
from lora_lab.timing.schedule import Timeline, schedule
from lora_lab.timing.shape import block_weights, head_weights, kv_elements
from lora_lab.timing.shape_ops import step_ops
from lora_lab.timing.stream_model import StreamModel, StreamTime
from lora_lab.timing.wide_card import WideCard, wide_card, wide_file, wide_names
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.partition import BOARD_COUNTS

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


class Target(Protocol):
    """Times the three kinds of step. `bytes` are per board. `precision` of its weights and
    activations. `small_operations_fitted`: operations that neither multiply nor norm are in
    start-ups fitted to a paper's times, and have no part of their own."""

    name: str
    precision: str
    small_operations_fitted: bool
    board: str
    boards: int
    draft: Draft | None
    roofs: Roofs
    notes: tuple[str, ...]

    def decode(self, context: int) -> Totals:
        """One token that attends to `context` positions."""

    def verify(self, rows: int, context: int) -> Totals:
        """A tree of `rows` rows over `context` positions."""

    def prefill(self, length: int) -> Totals:
        """A prompt of `length` tokens."""


class ArrayTarget:
    """An array design. Every row of a step uses `adapter`, if given."""

    def __init__(
        self,
        design: ArrayDesign,
        board: str,
        config: ModelConfig,
        layout: Layout,
        adapter: AdapterUse | None = None,
    ) -> None:
        self.facts = facts_of(design, board)
        layout.check(config, board)
        self.layout, boards = layout, layout.boards
        self.machine = machine_of(design, self.facts)
        self.design, self.config, self.adapter = design, config, adapter
        self.name, self.board, self.boards = design.name, board, boards
        self.precision = design.precision.upper()
        self.small_operations_fitted = design.operations == "fitted"
        self.draft = drafts()[design.speculation] if design.speculation else None
        link = self.machine.port_rate * self.machine.clock_hz * (2 if boards > 2 else 1)
        self.roofs = Roofs(
            memory=self.facts.bytes_per_second,
            compute=design.array[0] * design.array[1] * design.clock_hz,
            link=link if boards > 1 else 0.0,
        )
        self.overheads = overheads_of(design, board, config, layout, self.machine, adapter)
        self.notes = self._notes()

    def decode(self, context: int) -> Totals:
        return self.run(steps.decode(context))

    def verify(self, rows: int, context: int) -> Totals:
        return self.run(_verify(self.draft, rows, context))

    def prefill(self, length: int) -> Totals:
        return self.run(steps.prefill(length))

    def ops(self, shape: steps.StepShape) -> list[Op]:
        """The operators of a step."""
        return step_ops(self.machine, self.config, self.boards, shape, self.adapter, self.layout)

    def timeline(self, ops: Sequence[Op], shape: steps.StepShape, keep: bool = False) -> Timeline:
        """The schedule of a step's operators, with dispatch and host accesses if charged."""
        timeline = schedule(ops, self.machine.prefetch_cycles, keep)
        return timeline if self.overheads is None else self.overheads.charge(timeline, shape)

    def run(self, shape: steps.StepShape) -> Totals:
        """One step."""
        ops = self.ops(shape)
        timeline = self.timeline(ops, shape)
        return totals_of(ops, timeline, self.machine.clock_hz)

    def attention_case(self, context: int) -> Case:
        """A plain token at this context, as counted_attention.py asks for it."""
        charged = self.decode(context).by.get(ATTENTION, 0.0) * 1e3
        return Case(self.layout.stage_boards, context, charged)

    def _notes(self) -> tuple[str, ...]:
        design, config = self.design, self.config
        found = ["modelled"]
        if self.adapter is not None:
            found.append(
                f"with an adapter of rank {self.adapter.rank}, mode {self.adapter.mode}, FP16, on "
                "every projection and row"
            )
        if design.origin == "own":
            found.append(unbuilt_note(design))
        found.extend(memory_note(design, self.board))
        if self.layout.stages > 1:
            found.append(
                f"{self.layout.stages} stages of {self.layout.stage_boards} boards run one after "
                "the other: steps of other rows do not overlap them; bytes and roofs are those of "
                "a board of each stage together"
            )
        if self.layout.cross_links:
            found.append(
                "a ring of each stage and cables between stages: overlays use two ports and one "
                "ring, so this is modelled only"
            )
        if self.boards not in BOARD_COUNTS:
            found.append(
                f"timed on {self.boards} boards, on which nothing here runs: expected "
                f"{', '.join(map(str, BOARD_COUNTS))}"
            )
        share = self.layout.board_bytes(config, design)
        if share > self.facts.capacity_bytes:
            found.append(
                f"does not fit {counted(self.boards, 'board')}: {share / 1e9:.2f} GB of weights "
                "per board, "
                f"{self.facts.capacity_bytes / 1e9:.2f} GB of {self.facts.memory.upper()}; "
                "timed as if it did"
            )
        if (not config.norm_first or config.branch_norms != "none") and design.norms == "split":
            found.append(
                "the overlap of gathers assumes norms before the sums alone (pre-LayerNorm); this "
                "model has others, whose exchanges come between a matmul and the next gather"
            )
        return tuple(found)


def notes_of(cases: Sequence[tuple[Target, int]]) -> tuple[str, ...]:
    """What every report, table and plot says of plain tokens of one design: its notes, and what its
    counted attention units would add. `cases`: targets with their contexts."""
    notes = tuple(dict.fromkeys(note for target, _ in cases for note in target.notes))
    arrays = [(one, context) for one, context in cases if isinstance(one, ArrayTarget)]
    return (*notes, *(one for one in design_notes(arrays) if one not in notes))


def design_notes(cases: Sequence[tuple[ArrayTarget, int]]) -> tuple[str, ...]:
    """Of these the notes of the design itself, whatever the model's size: nothing for a paper's."""
    if not cases or cases[0][0].design.origin != "own":
        return ()
    first = cases[0][0]
    found = [target.attention_case(context) for target, context in cases]
    return (
        unbuilt_note(first.design),
        *memory_note(first.design, first.board),
        *attention_note(first.design, first.config, found),
    )


class StreamTarget:
    """A FlightLLM-like design."""

    def __init__(self, design: StreamDesign, board: str, config: ModelConfig, boards: int) -> None:
        if boards != 1:
            raise RequestError(
                f"design {design.name} on {boards} boards: it runs on one board only; "
                "use another design, or --boards 1"
            )
        if config.experts is not None:
            raise RequestError(
                f"design {design.name}: has no mixture of experts, which {config.architecture} is;"
                " use an overlay's design, as own-u280"
            )
        if config.recurrent is not None:
            raise RequestError(
                f"design {design.name}: has no layers without attention, as {config.architecture}"
                " has; use an overlay's design, as own-u280"
            )
        facts = facts_of(design, board)
        self.model = StreamModel(design, facts, config)
        self.name, self.board, self.boards = design.name, board, boards
        self.precision = "W4A8" if design.weight_bits == 4 else f"{design.weight_bits:g} bits"
        self.small_operations_fitted = True
        self.draft = drafts()[design.speculation] if design.speculation else None
        self.roofs = Roofs(facts.bytes_per_second, self.model.macs * design.clock_hz, 0.0)
        weights = (block_weights(config) + head_weights(config)) * design.weight_bytes
        fits = weights + kv_elements(config) * design.kv_bytes <= facts.capacity_bytes
        notes = (
            ("modelled",)
            if fits
            else (
                "modelled",
                f"{weights / 1e9:.2f} GB of weights do not fit the board's "
                f"{facts.capacity_bytes / 1e9:.2f} GB; the paper's times imply them",
            )
        )
        self.notes: tuple[str, ...] = (*notes, *memory_note(design, board))

    def decode(self, context: int) -> Totals:
        return _of_stream(self.model.decode(context))

    def verify(self, rows: int, context: int) -> Totals:
        return _of_stream(self.model.verify(rows, context))

    def prefill(self, length: int) -> Totals:
        return _of_stream(self.model.prefill(length))


class OverlayTarget:
    """An overlay with its own command lists, on as many boards as its placement allows. As for
    designs, an FP16 model is timed as if quantized to the overlay's precision."""

    def __init__(
        self,
        overlay: str,
        config: ModelConfig,
        boards: int,
        context: int | None = None,
        stages: int = 1,
    ) -> None:
        from lora_host.boards import load_board
        from lora_host.overlay import load_overlay
        from lora_lab.timing.overlay_time import OverlayTiming
        from lora_sdk.plan.placement import make_plan

        chosen = load_overlay(overlay)
        notes = ["modelled"]
        if config.quantization is None and chosen.precision != "fp16":
            config = quantized_as(config, chosen.precision)
            notes.append(f"the model is in FP16: timed as if it were quantized to {_title(config)}")
        plan = make_plan(
            config, chosen, load_board(chosen.board.name), boards, context, stages=stages
        )
        self.timing = OverlayTiming(config, plan)
        self.row_limit = plan.row_limit
        self.name, self.board, self.boards = chosen.name, chosen.board.name, boards
        found = config.quantization
        self.precision = "FP16" if found is None else found.scheme.upper()
        self.small_operations_fitted = False
        self.draft: Draft | None = drafts()["longspec"]
        machine = self.timing.machine
        banks = [chosen.board.banks[bank].bandwidth for bank in chosen.weight_banks]
        link = machine.port_rate * machine.clock_hz * (2 if boards > 2 else 1)
        self.roofs = Roofs(
            memory=float(sum(banks)),
            compute=machine.rows * machine.columns * machine.clock_hz,
            link=link if boards > 1 else 0.0,
        )
        notes.append("by ideal units of the overlay's size, which no hardware source here has")
        self.notes = tuple(notes)

    def decode(self, context: int) -> Totals:
        return self.run(steps.decode(context))

    def verify(self, rows: int, context: int) -> Totals:
        return self.run(_verify(self.draft, rows, context))

    def prefill(self, length: int) -> Totals:
        totals = Totals()
        for shape in steps.prefill_steps(length, self.row_limit):
            totals.add(self.run(shape))
        return totals

    def run(self, shape: steps.StepShape) -> Totals:
        """One step, with dispatch, host accesses and sums."""
        ops, clock = self.timing.step(shape).ops, self.timing.machine.clock_hz
        return totals_of(ops, self.timing.whole(shape), clock)


def _title(config: ModelConfig) -> str:
    found = config.quantization
    assert found is not None
    return f"{found.scheme.upper()} with {found.kv} K and V"


def _verify(draft: Draft | None, rows: int, context: int) -> steps.StepShape:
    """A tree whose header commits what `draft` has accepted by trees of that size."""
    accepted = 1.0 if draft is None else draft.aat(rows, context)
    return steps.verify(rows, context, max(1, round(accepted)))


def totals_of(ops: Sequence[Op], timeline: Timeline, clock_hz: float) -> Totals:
    """Cycles as seconds, bytes by kind."""
    by = {name: cycles / clock_hz for name, cycles in timeline.by.items()}
    moved = {
        "weights": sum(op.bytes for op in ops if op.category == WEIGHTS),
        "kv": sum(op.bytes for op in ops if op.category == ATTENTION),
        "link": sum(op.link_bytes for op in ops),
    }
    if any(op.category == ADAPTER for op in ops):
        moved["adapter"] = sum(op.bytes for op in ops if op.category == ADAPTER)
    return Totals(timeline.cycles / clock_hz, by, moved, sum(op.macs for op in ops))


def _of_stream(time: StreamTime) -> Totals:
    return Totals(time.seconds, dict(time.by), dict(time.bytes), time.macs)


def make_target(
    design: str,
    board: str | None,
    config: ModelConfig,
    boards: int,
    adapter: AdapterUse | None = None,
    stages: int = 1,
    cross_links: bool = False,
) -> Target:
    """The design, or overlay, named `design` on a board (None: its first). `adapter`: one that
    every row uses, for array designs. `stages`, `cross_links`: those of `Layout`.

    RequestError names an unknown or conflicting argument."""
    from lora_host.overlay import load_overlay, overlay_names
    from lora_lab.timing.source_target import SOURCE_TARGETS, SourceTarget
    from lora_lab.timing.wide_target import WideTarget

    if boards < 1:
        raise RequestError(f"{boards} boards; expected at least 1")
    if design in overlay_names():
        if adapter is not None:
            raise RequestError(
                f"overlay {design}: adapters are timed for array designs; use --design lora-f, "
                "or run it with lora-run --adapter --stats"
            )
        if cross_links:
            raise RequestError(
                f"overlay {design}: its lists use two ports, one ring or path of all boards; time "
                "a design, as own-v80"
            )
        target: OverlayTarget | SourceTarget
        if boards == stages == 1 and load_overlay(design).channels:  # as lora plan times it
            target = SourceTarget(design, config, boards)
        else:
            target = OverlayTarget(design, config, boards, stages=stages)
        if board is not None and board != target.board:
            raise RequestError(
                f"overlay {design} is for board {target.board}, not {board}; drop --board"
            )
        return target
    if design in SOURCE_TARGETS:
        if adapter is not None or stages > 1 or cross_links or board not in (None, "u280"):
            raise RequestError(
                f"design {design}: one U280 without adapters; use --design own-u280 for others"
            )
        return SourceTarget(design, config, boards)
    card = _wide(design)
    if card is not None:
        if adapter is not None or stages > 1 or cross_links:
            raise RequestError(
                f"design {design}: one ring without adapters; use --design own-u280 for others"
            )
        wide = WideTarget(card, config, boards)
        if board not in (None, wide.board):
            raise RequestError(
                f"design {design} is for board {wide.board}, not {board}; drop --board"
            )
        return wide
    known = (*design_names(), *overlay_names(), *SOURCE_TARGETS, *wide_names())
    if design not in design_names() and not design.endswith((".yaml", ".yml")):
        raise RequestError(f"design {design!r} is not known; {did_you_mean(design, known)}")
    layout = Layout(boards, stages, cross_links)
    return target_of(load_design(design), board, config, layout, adapter)


def _wide(design: str) -> WideCard | None:
    """The wide card of that name, or of a file that builds on one."""
    if design in wide_names():
        return wide_card(design)
    path = Path(design)
    is_file = path.suffix in (".yaml", ".yml") and path.is_file()
    return wide_file(path) if is_file else None


def target_of(
    design: Design,
    board: str | None,
    config: ModelConfig,
    layout: Layout,
    adapter: AdapterUse | None = None,
) -> Target:
    """A loaded design on a board. RequestError: an adapter for a design that is not an array."""
    chosen = board or design.boards[0]
    if isinstance(design, ArrayDesign):
        return ArrayTarget(design, chosen, config, layout, adapter)
    if adapter is not None:
        raise RequestError(
            f"design {design.name}: adapters are timed for array designs; use --design lora-f"
        )
    return StreamTarget(design, chosen, config, layout.boards)
