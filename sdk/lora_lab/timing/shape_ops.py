"""Operators of a step from a model's shape, for a design on any number of boards."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing import costs
from lora_lab.timing.adapter_ops import ADAPTER_BYTES, AdapterUse
from lora_lab.timing.expert_ops import expert_cost
from lora_lab.timing.layout import Layout
from lora_lab.timing.machine import Machine
from lora_lab.timing.ops import (
    ADAPTER,
    ATTENTION,
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
from lora_lab.timing.step import StepShape, windowed
from lora_lab.timing.vector_costs import VECTOR_COSTS
from lora_sdk.model.block import describe
from lora_sdk.model.kv_formats import kv_format
from lora_sdk.model.operations import (
    Activate,
    AddGated,
    AddPosition,
    Argmax,
    Attend,
    Elementwise,
    Embed,
    ExpertMatmul,
    GateHeads,
    JoinHeads,
    Matmul,
    Norm,
    NormGroups,
    NormHeads,
    Operation,
    PackSelected,
    Recur,
    Rope,
    Route,
    StoreKv,
    row,
    width,
)
from lora_sdk.plan.collectives import reads_routed
from lora_sdk.plan.formats import matmul_format
from lora_sdk.plan.partition import shares_segments
from lora_sdk.plan.tensors import FP16_BYTES

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

ATTENTION_STARTS = 3  # q.k, SoftMax and s.v are one operator each; with qkv, o, up, down and two
#                       norms a block has nine
MAX_BOARDS = 1024


def step_ops(
    machine: Machine,
    config: ModelConfig,
    boards: int,
    step: StepShape,
    adapter: AdapterUse | None = None,
    layout: Layout | None = None,
) -> list[Op]:
    """The operators of one step on the board with the largest share, in order; with stages on such
    a board of each, one after the other. Every row uses `adapter`, if given. `layout`: of the
    boards, None for one ring without stages.

    RequestError: the model or the adapter cannot be sharded over that many boards."""
    layout = layout or Layout(boards)
    boards, most = layout.stage_boards, min(MAX_BOARDS, config.heads)
    if not 1 <= boards <= most:
        of_stages = f" in {layout.stages} stages" if layout.stages > 1 else ""
        raise RequestError(
            f"{layout.boards} boards{of_stages}: the model has {config.heads} query heads and each "
            f"board needs one; use 1 to {most * layout.stages}, or "
            f"{-(-layout.boards // most)} stages or more"
        )
    if adapter is not None:
        adapter.check(boards)
    described = describe(config)
    layers: dict[object, list[Op]] = {}  # layers differ by window, and some have no rotation
    keys = [
        (config.window(index), *map(type, layer)) for index, layer in enumerate(described.layers)
    ]
    for key, layer in zip(keys, described.layers, strict=True):
        if key not in layers:
            layers[key] = _Builder(machine, config, layout, step, adapter).build(layer)
    ops: list[Op] = []
    if machine.lm_head:
        _append(ops, _Builder(machine, config, layout, step).build(described.before))
    begins = layout.begins(config)
    for index in range(config.layers):
        if index in begins:
            _append(ops, _Builder(machine, config, layout, step).pass_on())
        _append(ops, [replace(op, layer=index) for op in layers[keys[index]]])
    if machine.lm_head:
        sampled = replace(step, rows=step.sampled)
        _append(ops, _Builder(machine, config, layout, sampled).build(described.after))
    if not machine.charges_all or not step.committed:
        return ops
    whole = _Builder(machine, config, layout, step).commit()
    _append(whole, ops)  # it runs beside the first operators, before the first store
    return whole


def _append(ops: list[Op], more: Iterable[Op]) -> None:
    """Append `more`. Its `after` indices count from its own first operator."""
    base = len(ops)
    for op in more:
        after = tuple(base + index for index in op.after if base + index >= 0)
        ops.append(replace(op, after=after))


class _Builder:
    """A chain of operators, each after the previous one."""

    def __init__(
        self,
        machine: Machine,
        config: ModelConfig,
        layout: Layout,
        step: StepShape,
        adapter: AdapterUse | None = None,
    ) -> None:
        self.machine = machine
        self.config = config
        self.layout = layout
        self.boards = layout.stage_boards
        self.step = step
        self.rows = step.rows
        self.adapter = adapter
        self.ops: list[Op] = []

    def build(self, operations: Iterable[Operation]) -> list[Op]:
        """The operators of a model's operations. `after` indices count from the first one."""
        for operation in operations:
            row(OPERATORS, operation)(self, operation)
        return self.ops

    def _add(self, **fields: object) -> None:
        self.ops.append(Op(layer=-1, after=(len(self.ops) - 1,), **fields))  # type: ignore[arg-type]

    def matrix(self, what: str, k: int, n: int, head: bool = False) -> None:
        """`head`: of lm_head or an embedding's projection, which no group scales."""
        machine = self.machine
        passes = costs.matrix_passes(machine, self.rows)
        each = machine.weight_bytes
        if head and machine.head_bytes:
            each = machine.head_bytes
        once = k * n * each
        rate = machine.stream_rate if self.rows == 1 else machine.prefill_rate
        behind = bool(self.ops) and self.ops[-1].unit == ROUTER and not machine.stalled
        self._add(
            unit=MPU,
            category=WEIGHTS,
            what=what,
            start=machine.start_cycles,
            compute=costs.matrix_cycles(machine, self.rows, k, n),
            stream=once * passes / rate,
            bytes=once * passes,
            macs=float(self.rows) * k * n,
            segments=behind,
            local=1 / self.boards,
        )

    def matmul(self, matmul: Matmul) -> None:
        """The gather of a matmul's input, the matmul, and the adapter. A comes after the matmul,
        which still hides the gather of its input. Then h is gathered if A is sharded. Then B ends
        the same operator. B is block-diagonal if its columns are not the hidden ones."""
        what, k, n = matmul.short, matmul.k, self._columns(matmul)
        self._input(matmul)
        self.matrix(what, k, n, head=matmul.layer is None)
        if self.adapter is None or not matmul.adapts:
            return
        modules, blocked_b = len(matmul.outputs), matmul.target.axes[0] != "hidden"
        down = modules * self.adapter.down_ranks(self.boards)
        self._factor(f"{what} adapter A", k, down, self.machine.start_cycles)
        values = self.adapter.gathered(self.boards, modules)
        if values:
            start = self.machine.start_cycles
            self.gather(f"gather {what} adapter", values, ADAPTER_BYTES, start)
        self._factor(f"{what} adapter B", self.adapter.up_ranks(self.boards, blocked_b), n, 0.0)

    def _input(self, matmul: Matmul) -> None:
        """The gather of a matmul's input, quantized before or behind it."""
        what, form, k = matmul.short, matmul_format(self.config, matmul), matmul.row_columns
        own, routed = math.ceil(k / self.boards), reads_routed(self.config, matmul)
        late = (form.dynamic and self.boards > abi.ROW_MAXIMA) or routed
        if matmul.gather and not late:
            if form.dynamic:
                self.row_max(what, own, exchanged=True)
            self.quantize(what, own, form.dynamic)
        if matmul.gather:
            self.gather(f"gather {what}", k, FP16_BYTES if late or matmul.routes else None)
        if late and form.dynamic:
            self.row_max(what, k, exchanged=False)
        if late:
            self.quantize(what, k, form.dynamic)

    def route(self, route: Route) -> None:
        """Every board chooses, of all logits."""
        op = abi.VEC_ROUTE_SIGMOID if route.sigmoid else abi.VEC_ROUTE
        self._by_columns("route", op, width(self.config, route.source.axes[0]))

    def experts(self, matmul: ExpertMatmul) -> None:
        """The gather of what all chosen experts read, and the experts' shares of the matrix."""
        machine, what, k = self.machine, matmul.short, matmul.k
        self._input(matmul)
        n = self._columns(matmul) // matmul.experts
        found = expert_cost(machine, matmul.experts, matmul.chosen, self.rows, k, n)
        size = found.passes * k * n * machine.weight_bytes
        self._add(
            unit=MPU,
            category=WEIGHTS,
            what=what,
            start=machine.start_cycles,
            compute=found.cycles,
            stream=size / (machine.stream_rate if self.rows == 1 else machine.prefill_rate),
            bytes=size,
            macs=float(self.rows) * matmul.chosen * k * n,
        )

    def row_max(self, what: str, columns: int, exchanged: bool) -> None:
        """A pass over columns for the max of a row, and the exchange of boards' maxima."""
        cycles = costs.vector_cycles(self.machine, self.rows, columns, 1)
        self._norm(f"max of {what}", cycles, exchanged)

    def _columns(self, matmul: Matmul) -> int:
        """Number of columns on the board with the largest share."""
        columns = 0
        for axis, outputs in groupby(output.axis for output in matmul.outputs):
            count, head_dim = len(list(outputs)), self.config.head_dim
            if axis == "heads":
                columns += count * self.heads * head_dim
            elif axis == "kv_heads":
                columns += count * self.kv_heads * head_dim
            elif axis in ("experts", "shared_gate", "rope_key"):  # which every board has whole
                columns += count * width(self.config, axis)
            else:
                columns += math.ceil(count * width(self.config, axis) / self.boards)
        return columns

    @property
    def heads(self) -> int:
        """Number of query heads of the largest share."""
        return math.ceil(self.config.heads / self.boards)

    @property
    def kv_heads(self) -> int:
        """Max number of KV heads that they use."""
        return min(self.config.kv_heads, math.ceil(self.config.kv_heads / self.boards))

    def _factor(self, what: str, k: int, n: int, start: float) -> None:
        machine = self.machine
        size = float(k * n * ADAPTER_BYTES * costs.matrix_passes(machine, self.rows))
        self._add(
            unit=MPU,
            category=ADAPTER,
            what=what,
            start=start,
            compute=costs.matrix_cycles(machine, self.rows, k, n),
            stream=size / machine.stream_rate,
            bytes=size,
            macs=float(self.rows) * k * n,
        )

    def norm(self, norm: Norm) -> None:
        machine, layer_norm = self.machine, norm.kind == "layernorm"
        what = norm.name.rpartition(".")[2].replace("_", " ")
        whole = machine.replicated_norms
        if shares_segments(self.boards) and not whole:  # each board sums all columns
            self.gather(f"gather {what}", width(self.config, norm.source.axes[0]), FP16_BYTES)
            whole = True
        columns = width(self.config, norm.source.axes[0]) / (1 if whole else self.boards)
        cycles = costs.norm_cycles(machine, self.rows, math.ceil(columns), layer_norm)
        self._norm(what, cycles, exchanged=not whole)

    def norm_heads(self, norm: NormHeads) -> None:
        """q or k of the largest share; heads normed by themselves need no exchange."""
        heads = self.heads if norm.part == "q" else self.kv_heads
        columns = heads * self.config.head_dim
        cycles = costs.norm_cycles(self.machine, self.rows, columns, layer_norm=False)
        self._norm(f"{norm.part} norm", cycles, exchanged=norm.whole)

    def norm_groups(self, norm: NormGroups) -> None:
        """The largest share's columns, as of a norm of heads."""
        recurrent = self.config.recurrent
        assert recurrent is not None
        columns = math.ceil(recurrent.values * self.heads / self.config.heads)
        cycles = costs.norm_cycles(self.machine, self.rows, columns, layer_norm=False)
        self._norm("norm of groups", cycles, exchanged=True)

    def _norm(self, what: str, cycles: float, exchanged: bool) -> None:
        machine = self.machine
        self._add(unit=VFU, category=VECTOR, what=what, start=machine.start_cycles, compute=cycles)
        if self.boards > 1 and exchanged:
            exposed = costs.exchange_cycles(machine, self.boards, self.rows, cycles)
            self._add(unit=ROUTER, category=LINK, what=f"exchange {what}", compute=exposed,
                      link_bytes=float(machine.row_group * 2 * math.ceil(
                          self.rows / machine.row_group)))  # fmt: skip

    def gather(
        self, what: str, columns: int, element: int | None = None, start: float = 0.0
    ) -> None:
        if self.boards == 1:
            return
        cycles, sent = costs.gather_cycles(
            self.machine,
            self.boards,
            columns,
            self.rows,
            element or self.machine.activation_bytes,
            self.layout.is_path,
        )
        self._add(
            unit=ROUTER, category=LINK, what=what, start=start, compute=cycles, link_bytes=sent
        )

    def pass_on(self) -> list[Op]:
        """The residual stream to the next stage: each board's columns into whole rows, these over
        the links, its columns out of them."""
        passing = costs.cross_passing_cycles if self.layout.cross_links else costs.passing_cycles
        cycles, sent = passing(self.machine, self.boards, self.config.hidden, self.rows)
        share = math.ceil(self.config.hidden / self.boards) * FP16_BYTES
        moved = float(self.rows * math.ceil(share / abi.LINE_BYTES))
        start = self.machine.start_cycles
        self._add(unit=DMA, category=KV, what="rows for the next stage", start=start, compute=moved)
        self._add(unit=ROUTER, category=LINK, what="gather stage", start=start, compute=cycles,
                  link_bytes=sent)  # fmt: skip
        self._add(unit=DMA, category=KV, what="rows of the stage before", start=start,
                  compute=moved)  # fmt: skip
        return self.ops

    def attention(self, attend: Attend) -> None:
        machine, config, heads = self.machine, self.config, self.heads
        step = windowed(self.step, attend.window)
        more = attend.slopes, bool(attend.cap)
        scores = step.visible + step.rows * bool(attend.sinks)  # a sink is one more
        softmax = costs.softmax_cycles(machine, step.rows, heads, scores, *more)
        products = costs.attention_cycles(machine, config.head_dim, heads, step.visible)
        cycles, vector = costs.attention_parts(
            machine, config.head_dim, heads, step.rows, products, softmax
        )
        held = self.kv_heads if machine.kv_grouped else heads
        read = _kv_bytes(machine, config, step, held, self.layout.layers(config))
        self._add(
            unit=MPU,
            category=ATTENTION,
            what="attention",
            start=ATTENTION_STARTS * machine.start_cycles,
            compute=cycles,
            vector=vector,
            stream=read / machine.stream_rate,
            bytes=read,
            macs=costs.attention_macs(config.head_dim, heads, step.visible),
        )

    def gate_heads(self, gate: GateHeads) -> None:
        self._by_columns("gate heads", abi.VEC_GATE, self.heads * self.config.head_dim)

    def join_heads(self, join: JoinHeads) -> None:
        head_dim, latent = self.config.head_dim, self.config.latent
        assert latent is not None
        columns = self.heads * latent.values if join.part == "y" else self.kv_heads * head_dim
        self._by_columns(f"join heads of {join.part}", abi.VEC_JOIN_HEADS, columns)

    def recur(self, recur: Recur) -> None:
        """Modelled as the moves of what positions keep: those that a row reads, and the state."""
        config = self.config
        assert config.recurrent is not None
        columns = config.recurrent.kernel * config.recurrent.columns(config.kv_heads)
        state = config.recurrent.state_bytes / FP16_BYTES / config.kv_heads
        size = (columns + state) * FP16_BYTES * self.kv_heads
        self._moves(f"recurrence {recur.kind}", self.rows * math.ceil(size / abi.LINE_BYTES))

    def _by_columns(self, what: str, op: int, columns: float) -> None:
        """An operation of the vector lanes on columns of each row; included in the fitted start-ups
        of designs that are charged no such operations."""
        machine = self.machine
        if not machine.charges_all:
            return
        cost = VECTOR_COSTS[op]
        cycles = costs.vector_cycles(machine, self.rows, math.ceil(columns), cost.passes)
        self._add(unit=VFU, category=VECTOR, what=what, start=machine.start_cycles,
                  compute=cycles + self.rows * cost.latency(machine))  # fmt: skip

    def _moves(self, what: str, lines: int) -> None:
        """`lines` of 64 bytes by the DMA unit, one a cycle, as overlays' lists are charged."""
        if self.machine.charges_all:
            start = self.machine.start_cycles
            self._add(unit=DMA, category=KV, what=what, start=start, compute=float(lines))

    def quantize(self, what: str, columns: int, dynamic: bool) -> None:
        """The INT8 input of a matmul."""
        if self.machine.activation_bytes == 1:
            op = abi.VEC_QUANTIZE_ROW if dynamic else abi.VEC_QUANTIZE
            self._by_columns(f"quantize {what}", op, columns)

    def embed(self, embed: Embed) -> None:
        self._by_columns("embed", abi.VEC_EMBED, self.config.embed_dim / self.boards)

    def add_position(self, add: AddPosition) -> None:
        self._by_columns("add position", abi.VEC_ADD_POSITION, self.config.hidden / self.boards)

    def rope(self, rope: Rope) -> None:
        columns = (self.heads + self.kv_heads) * self.config.head_dim
        self._by_columns("rope", abi.VEC_ROPE, columns)

    def store(self, store: StoreKv) -> None:
        """q, k and v quantized where the cache is INT8, and k and v into the row's slot."""
        columns = (self.heads + 2 * self.kv_heads) * self.config.head_dim
        if self.machine.kv_bytes == 1:
            self._by_columns("quantize q, k, v", abi.VEC_QUANTIZE, columns)
        self._moves("kv store", self.rows * self.kv_heads * self._position_lines())

    def _position_lines(self) -> int:
        kind = kv_format("int8" if self.machine.kv_bytes == 1 else "fp16")
        return costs.position_lines(kind, self.config.head_dim)

    def commit(self) -> list[Op]:
        """Positions of the step before into the cache: each is read and written."""
        each = self.layout.layers(self.config) * self.kv_heads * self._position_lines()
        self._moves("kv commit", 2 * self.step.committed * each)
        return self.ops

    def activate(self, activate: Activate) -> None:
        op = abi.VEC_SWIGLU if activate.gated else abi.VEC_GELU_TANH
        op = abi.VEC_SWIGLU_CLAMPED if activate.limit else op
        columns = width(self.config, activate.target.axes[0]) / self.boards
        self._by_columns(f"activation {activate.kind}", op, columns)

    def elementwise(self, op: Elementwise) -> None:
        columns = sum(width(self.config, axis) for axis in op.target.axes)
        self._by_columns(op.what, op.command, columns / self.boards)

    def add_gated(self, add: AddGated) -> None:
        self._by_columns("add shared", abi.VEC_ADD_GATED, self.config.hidden / self.boards)

    def pack(self, pack: PackSelected) -> None:
        size = math.ceil(self.config.hidden / self.boards) * FP16_BYTES
        self._moves("pack rows", self.rows * math.ceil(size / abi.LINE_BYTES))

    def argmax(self, argmax: Argmax) -> None:
        self._by_columns("argmax", abi.VEC_ARGMAX, self.config.vocabulary / self.boards)


OPERATORS: dict[type[Operation], Callable[[_Builder, Any], None]] = {
    Embed: _Builder.embed,
    AddPosition: _Builder.add_position,
    Norm: _Builder.norm,
    NormHeads: _Builder.norm_heads,
    NormGroups: _Builder.norm_groups,
    Matmul: _Builder.matmul,
    Rope: _Builder.rope,
    StoreKv: _Builder.store,
    Attend: _Builder.attention,
    Activate: _Builder.activate,
    Elementwise: _Builder.elementwise,
    PackSelected: _Builder.pack,
    Argmax: _Builder.argmax,
    Route: _Builder.route,
    ExpertMatmul: _Builder.experts,
    AddGated: _Builder.add_gated,
    Recur: _Builder.recur,
    GateHeads: _Builder.gate_heads,
    JoinHeads: _Builder.join_heads,
}


def _kv_bytes(
    machine: Machine, config: ModelConfig, step: StepShape, heads: int, layers: int
) -> float:
    """Bytes of K and V of one block that are read from memory, because they are not in the on-chip
    cache. That cache is shared by all blocks and by the board's heads."""
    position = 2.0 * heads * config.head_dim * machine.kv_bytes
    held = machine.kv_onchip_bytes / (position * layers)
    return max(0.0, step.kv_positions - held) * position
