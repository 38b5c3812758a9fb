"""Operators of a step from a board's command list, the one that emulated boards run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import ModelError, RequestError
from lora_lab.timing import costs
from lora_lab.timing.expert_ops import expert_cost
from lora_lab.timing.facts import parameters
from lora_lab.timing.machine import Machine
from lora_lab.timing.ops import (
    ATTENTION,
    CONTROL,
    DMA,
    KV,
    LINK,
    MPU,
    ROUTER,
    VECTOR,
    VFU,
    WEIGHTS,
    Op,
)
from lora_lab.timing.shape_ops import ATTENTION_STARTS
from lora_lab.timing.step import StepShape, sampled_rows, whole_tiles, windowed
from lora_lab.timing.vector_costs import vector_cost
from lora_sdk.compile import isa
from lora_sdk.model.weight_formats import of_precision, of_weight_type
from lora_sdk.plan.collectives import Collective, LinkBytes, Span, add_traffic
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES

if TYPE_CHECKING:
    from lora_sdk.plan.kv import KvLayout
    from lora_sdk.plan.model_plan import Plan

FP16_PASSES = 4  # INT8 multiplications per multiplication of 11-bit significands
UNITS = {
    abi.UNIT_MPU: MPU,
    abi.UNIT_VFU: VFU,
    abi.UNIT_ROUTER: ROUTER,
    abi.UNIT_DMA: DMA,
    abi.UNIT_CONTROL: CONTROL,
}


class ListTiming:
    """Turns the command list of the board at `rank` into operators, for any step."""

    def __init__(
        self, machine: Machine, plan: Plan, rank: int, commands: Sequence[isa.Command]
    ) -> None:
        self.machine = machine
        self.plan = plan
        self.board = plan.boards[rank]
        self.fixed_fields = list(fixed_fields(commands, plan.stage_boards))
        spans = [getattr(command, "span", abi.SPAN_ALL) for command in commands]
        self._received = _find(spans, abi.SPAN_FROM_PREVIOUS)
        self._passed = _find(spans, abi.SPAN_TO_NEXT)

    def ops(self, step: StepShape) -> list[Op]:
        """The operators of one step, one per command, in the list's order.

        RequestError names a command that has no timing."""
        known: dict[Any, dict[str, Any]] = {}  # equal commands of other blocks cost the same
        found: list[Op] = []
        for command, fields, key in self.fixed_fields:
            cost = known.get(key)
            if cost is None:
                cost = known[key] = self._cost(command, step)
            found.append(Op(**fields, **cost))
        return found

    def stage_ops(self, step: StepShape, arrival: float) -> list[Op]:
        """The operators up to the rows that the next stage gets, where there is one. Those of the
        stage before are here at cycle `arrival`; their way was that stage's time."""
        found = self.ops(step)
        if self._received is not None:
            op = found[self._received]
            found[self._received] = replace(
                op, start=0.0, compute=0.0, link_bytes=0.0, not_before=arrival
            )
        return found if self._passed is None else found[: self._passed + 1]

    def _cost(self, command: isa.Command, step: StepShape) -> dict[str, Any]:
        """Cost fields of a command in a step."""
        if isinstance(command, isa.Attention):
            step = windowed(step, command.window)
        if command.flags & abi.FLAG_SELECTED:
            step = sampled_rows(step)
        rows = _rows(command, step)
        cost = COSTS.get(type(command))
        if cost is None:
            raise RequestError(
                f"command {command.what!r} ({type(command).__name__}) has no timing; "
                "add it to lora_lab.timing.list_ops"
            )
        return cost(self, command, rows, step)

    def passes_per_mac(self, integer: bool) -> int:
        """Passes of an array of INT8 multipliers per multiplication."""
        array = of_precision(self.plan.overlay.precision)
        return 1 if integer or not array.integer else FP16_PASSES

    # Bytes that a command moves.

    def bank_cycles(self, bank: int, size: float) -> float:
        """Cycles in which one bank streams `size` bytes."""
        machine, board = self.machine, self.plan.board
        efficiency = parameters()["lora_hbm_efficiency"].value
        return size / (efficiency * board.banks[bank].bandwidth / machine.clock_hz)

    def spill_cycles(self, size: float) -> float:
        """Cycles in which the banks of spilled KV pages stream `size` bytes, spread over them."""
        spill = self.board.kv.spill
        return self.bank_cycles(spill.bank_first, size / spill.bank_count) if spill else 0.0


def _find(spans: Sequence[int], wanted: int) -> int | None:
    return spans.index(wanted) if wanted in spans else None


def _rows(command: isa.Command, step: StepShape) -> int:
    """Rows that a command works on. Boards' votes are one row of any step that has rows."""
    if command.flags & abi.FLAG_VOTES:
        return min(1, step.rows)
    return step.rows


def fixed_fields(
    commands: Sequence[isa.Command], boards: int
) -> Iterator[tuple[isa.Command, dict[str, Any], Any]]:
    """Each command with the fields that do not depend on the step (unit, names, dependencies), and
    the cache key of its cost."""
    signals: dict[int, list[int]] = {}
    for index, command in enumerate(commands):
        after: tuple[int, ...] = ()
        if command.wait_counter != abi.NO_COUNTER:
            after = tuple(signals[command.wait_counter])
        segments = bool(command.flags & abi.FLAG_WAIT_SEGMENTS)
        fields = {
            "unit": UNITS[command.UNIT],
            "what": command.what,
            "layer": -1 if command.layer == isa.NO_LAYER else command.layer,
            "after": after,
            "segments": segments,
            "local": 1 / boards if segments else 1.0,
        }
        selected = bool(command.flags & abi.FLAG_SELECTED)
        votes = bool(command.flags & abi.FLAG_VOTES)
        yield command, fields, (type(command), selected, votes, *_sizes(command))
        if command.signal_counter != abi.NO_COUNTER:
            signals.setdefault(command.signal_counter, []).append(index)


def _sizes(command: isa.Command) -> tuple[Any, ...]:
    if isinstance(command, isa.Matrix):
        banks = command.bank_first, command.bank_count, command.merge
        return command.k, command.n, *banks, command.weight_type, bool(command.adapter)
    if isinstance(command, isa.Adapter):
        return (command.k,)
    if isinstance(command, isa.Experts):
        banks = command.bank_first, command.bank_count, command.merge
        return command.k, command.n, *banks, command.weight_type, command.experts, command.chosen
    if isinstance(command, isa.Vector):
        return command.op, command.columns
    if isinstance(command, isa.Attention):
        seen = command.window, command.slope_kind, command.cap
        return command.q_heads, command.kv_heads, command.head_dim, *seen
    if isinstance(command, isa.Gather):
        widths = command.share_unit, command.segment_unit, command.element_bytes
        return command.columns, *widths, command.span
    if isinstance(command, isa.Recurrence):
        return (command.form,)  # a model has recurrences of one form
    return tuple(getattr(command, name, 0) for name in ("kv_heads", "head_dim", "bytes", "layers"))


def _matrix(timing: ListTiming, command: isa.Matrix, rows: int, step: StepShape) -> dict[str, Any]:
    machine = timing.machine
    blocks = math.ceil(command.k / abi.BLOCK_K) * math.ceil(command.n / abi.BLOCK_N)
    requests = math.ceil(blocks / command.merge)
    passes = costs.matrix_passes(machine, rows) if rows else 0
    block = block_bytes(command)
    fullest = passes * math.ceil(requests / command.bank_count) * command.merge * block
    rank = timing.plan.adapters.rank if command.adapter else 0
    more = _factor(timing, step, rank, command.n)
    integer = of_weight_type(command.weight_type)[0].integer
    multiplied = costs.matrix_cycles(machine, rows, command.k, command.n)
    return {
        "category": WEIGHTS,
        "start": machine.start_cycles if rows else 0.0,
        "compute": multiplied * timing.passes_per_mac(integer) + more["compute"],
        "stream": timing.bank_cycles(command.bank_first, fullest) + more["stream"],
        "bytes": float(passes * blocks * block) + more["bytes"],
        "macs": float(rows) * command.k * command.n + more["macs"],
        "banks": (command.bank_first, command.bank_count, fullest),
    }


def _adapter(
    timing: ListTiming, command: isa.Adapter, rows: int, step: StepShape
) -> dict[str, Any]:
    rank = timing.plan.adapters.share(timing.plan.stage_boards)
    start = timing.machine.start_cycles if step.adapted else 0.0
    return {"category": WEIGHTS, "start": start, **_factor(timing, step, rank, command.k)}


def _factor(timing: ListTiming, step: StepShape, rank: int, width: int) -> dict[str, float]:
    """A or B for the rows with an adapter, timed at the max rank of a slot. The factors of each
    adapter are read once."""
    layout = timing.board.adapters
    if not rank or not step.adapted or layout is None:
        return dict.fromkeys(("compute", "stream", "bytes", "macs"), 0.0)
    size = step.adapters * rank * width * 2
    return {
        "compute": costs.matrix_cycles(timing.machine, step.adapted, width, rank),
        "stream": timing.bank_cycles(layout.bank_first, size / layout.bank_count),
        "bytes": float(size),
        "macs": float(step.adapted) * rank * width,
    }


def _experts(
    timing: ListTiming, command: isa.Experts, rows: int, step: StepShape
) -> dict[str, Any]:
    """The experts that rows choose at random; each is spread over all banks."""
    machine, k, n = timing.machine, command.k, command.n
    blocks = math.ceil(k / abi.BLOCK_K) * math.ceil(n / abi.BLOCK_N)
    requests = math.ceil(blocks / command.merge)
    block = block_bytes(command)
    integer = of_weight_type(command.weight_type)[0].integer
    found = expert_cost(machine, command.experts, command.chosen, rows, k, n)
    each = math.ceil(requests / command.bank_count) * command.merge * block
    fullest = math.ceil(found.passes * each)
    return {
        "category": WEIGHTS,
        "start": machine.start_cycles if rows else 0.0,
        "compute": found.cycles * timing.passes_per_mac(integer),
        "stream": timing.bank_cycles(command.bank_first, fullest),
        "bytes": found.passes * blocks * block,
        "macs": float(rows) * command.chosen * k * n,
        "banks": (command.bank_first, command.bank_count, fullest),
    }


def block_bytes(command: isa.Matrix | isa.Experts) -> int:
    """Bytes of one weight block of the command, including scales and zero points. RequestError: a
    weight type without timing."""
    try:
        weights, group = of_weight_type(command.weight_type)
    except ModelError as error:
        raise RequestError(f"command {command.what!r} has no timing: {error}") from None
    return weights.block_bytes(group)


def _attention(
    timing: ListTiming, command: isa.Attention, rows: int, step: StepShape
) -> dict[str, Any]:
    machine, heads, dim = timing.machine, command.q_heads, command.head_dim
    slopes = command.slope_kind not in (abi.SLOPE_NONE, abi.SLOPE_SINK)
    scores = step.visible + rows * (command.slope_kind == abi.SLOPE_SINK)  # a sink is one more
    softmax = costs.softmax_cycles(machine, rows, heads, scores, slopes, command.cap != 0)
    kv = timing.board.kv
    each = 2 * command.kv_heads
    blocks = each * whole_tiles(step.kv_positions) // abi.TILE_POSITIONS
    block = kv.block_bytes
    spilled = each * spilled_pages(kv, step)
    fullest = math.ceil((blocks - spilled) / kv.bank_count) * block
    passes_per_mac = timing.passes_per_mac(kv.format.static)
    return {
        "category": ATTENTION,
        "start": ATTENTION_STARTS * machine.start_cycles if rows else 0.0,
        "compute": passes_per_mac * costs.attention_cycles(machine, dim, heads, step.visible)
        + softmax,
        "vector": softmax,
        "stream": timing.bank_cycles(kv.bank_first, fullest) + timing.spill_cycles(spilled * block),
        "bytes": float(blocks * block),
        "macs": costs.attention_macs(dim, heads, step.visible),
        "banks": (kv.bank_first, kv.bank_count, fullest),
    }


def _recurrence(
    timing: ListTiming, command: isa.Recurrence, rows: int, step: StepShape
) -> dict[str, Any]:
    """Modelled as the moves of what positions keep: those that a row reads, and the state."""
    each = 2 * command.key_heads * command.key_columns
    each += command.value_heads * command.value_columns
    state = FP32_BYTES * command.key_columns * command.value_heads * command.value_columns
    size = command.kernel * each * FP16_BYTES + state
    lines = rows * timing.board.kv.heads * math.ceil(size / abi.LINE_BYTES)
    return {"category": ATTENTION, "start": timing.machine.start_cycles if rows else 0.0,
            "compute": float(lines), "bytes": float(lines * abi.LINE_BYTES)}  # fmt: skip


def _vector(timing: ListTiming, command: isa.Vector, rows: int, step: StepShape) -> dict[str, Any]:
    machine, cost = timing.machine, vector_cost(command)
    columns = costs.vector_cycles(machine, rows, command.columns, cost.passes)
    return {
        "category": VECTOR,
        "start": machine.start_cycles if rows else 0.0,
        "compute": columns + rows * cost.latency(machine),
    }


def _gather(timing: ListTiming, command: isa.Gather, rows: int, step: StepShape) -> dict[str, Any]:
    machine, plan = timing.machine, timing.plan
    each, span = plan.stage_boards, None
    if command.span != abi.SPAN_ALL:
        span = Span(0, each if command.span == abi.SPAN_STAGE else 2 * each, each)
    boards, ring = (span.boards, False) if span else (plan.size, plan.route.ring)
    widths = command.columns, command.share_unit, command.segment_unit, command.element_bytes
    sent = _busiest_port(Collective("", *widths, span=span), boards, ring, rows)
    hops = boards // 2 if ring else boards - 1
    moving = hops * machine.hop_cycles if sent else 0.0
    return {
        "category": LINK,
        "start": machine.start_cycles if rows else 0.0,
        "compute": moving + sent / machine.port_rate,
        "link_bytes": float(sent),
    }


@cache
def _busiest_port(collective: Collective, boards: int, ring: bool, rows: int) -> int:
    """Bytes, including frame overhead, of the port that sends most."""
    totals = {(rank, way): LinkBytes() for rank in range(boards) for way in ("next", "previous")}
    add_traffic(totals, collective, boards, ring, rows)
    return max(sent.frames for sent in totals.values())


def _kv_store(
    timing: ListTiming, command: isa.KvStore, rows: int, step: StepShape
) -> dict[str, Any]:
    machine = timing.machine
    lines = rows * command.kv_heads * position_lines(timing.board.kv)
    return {"category": KV, "start": machine.start_cycles, "compute": float(lines),
            "bytes": float(lines * abi.LINE_BYTES)}  # fmt: skip


def _kv_commit(
    timing: ListTiming, command: isa.KvCommit, rows: int, step: StepShape
) -> dict[str, Any]:
    """Each committed position is read and written, in every block and KV head of the board."""
    machine, layers = timing.machine, command.layers or timing.board.kv.layers
    heads = len(timing.board.share.kv_heads)
    each = layers * heads * position_lines(timing.board.kv)
    lines = 2 * step.committed * each
    kv = timing.board.kv
    there = min(step.committed, spilled_pages(kv, step) * abi.TILE_POSITIONS)
    return {"category": KV, "start": machine.start_cycles if lines else 0.0,
            "compute": float(lines), "stream": timing.spill_cycles(there * each * abi.LINE_BYTES),
            "bytes": float(lines * abi.LINE_BYTES)}  # fmt: skip


def spilled_pages(kv: KvLayout, step: StepShape) -> int:
    """Pages outside the weight banks that a step reads. Pages of the weight banks are taken
    first."""
    pages = whole_tiles(step.kv_positions) // abi.TILE_POSITIONS
    if kv.spill is None:
        return 0
    if step.spilled is None:
        return max(0, pages - (kv.first_spilled - kv.scratch_pages))
    return min(pages, whole_tiles(step.spilled) // abi.TILE_POSITIONS)


def position_lines(kv: KvLayout) -> int:
    """Lines of 64 bytes that one position of one head touches."""
    return costs.position_lines(kv.format, kv.head_dim)


def _move(timing: ListTiming, command: isa.MoveRows, rows: int, step: StepShape) -> dict[str, Any]:
    lines = rows * math.ceil(command.bytes / abi.LINE_BYTES)
    return {"category": KV, "start": timing.machine.start_cycles if rows else 0.0,
            "compute": float(lines)}  # fmt: skip


def _nothing(
    timing: ListTiming, command: isa.Command, rows: int, step: StepShape
) -> dict[str, Any]:
    return {"category": KV, "compute": 0.0}


COSTS: dict[type[isa.Command], Callable[..., dict[str, Any]]] = {
    isa.Matrix: _matrix,
    isa.Adapter: _adapter,
    isa.Experts: _experts,
    isa.Vector: _vector,
    isa.Attention: _attention,
    isa.Recurrence: _recurrence,
    isa.Gather: _gather,
    isa.KvStore: _kv_store,
    isa.KvCommit: _kv_commit,
    isa.MoveRows: _move,
    isa.Fence: _nothing,
    isa.Ballot: _nothing,
    isa.End: _nothing,
}
