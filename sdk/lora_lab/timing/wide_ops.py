"""Operators of a step on the wide card (wide_card.py), from a model's shape, each operation at the
rate of its planned unit. What a unit makes of a matmul's tiles as they come takes its latency and
what is left when the last tiles are there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing.matmul_counts import eight_bit_tile, four_bit_tile
from lora_lab.timing.ops import (
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
from lora_lab.timing.vector_counts import CHUNK
from lora_sdk.model.block import describe
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

if TYPE_CHECKING:
    from lora_lab.timing.wide_card import WideCard
    from lora_sdk.model.spec import ModelConfig

GROUP = 128  # of W4A8
LINE = abi.LINE_BYTES
KV_SIDES = 2  # K and V, both by columns


def wide_step_ops(card: WideCard, config: ModelConfig, boards: int, step: StepShape) -> list[Op]:
    """The operators of one step on the board with the largest share, in order."""
    described, builder = describe(config), _Builder(card, config, boards, step)
    builder.commit()
    for layer in (described.before, *described.layers):
        builder.layer(layer)
    builder.rows = step.sampled
    builder.layer(described.after)
    return builder.ops


class _Builder:
    """A chain of operators, each after the one before; a commit runs beside the first ones."""

    def __init__(self, card: WideCard, config: ModelConfig, boards: int, step: StepShape) -> None:
        self.card, self.config, self.boards = card, config, boards
        self.step, self.rows = step, step.rows
        self.heads = math.ceil(config.heads / boards)
        self.kv_heads = min(config.kv_heads, math.ceil(config.kv_heads / boards))
        self.ops: list[Op] = []
        self.assigned: Counter[int] = Counter()

    def layer(self, operations: Iterable[Operation]) -> None:
        """Its tiles are assigned to the channels one after the other, from the first one on."""
        self.assigned.clear()
        for operation in operations:
            self.add(operation)

    def add(self, operation: Operation) -> None:
        """The operators of one operation."""
        row(OPERATORS, operation)(self, operation)

    def _op(self, unit: str, category: str, what: str, cycles: float, **more: Any) -> None:
        last = len(self.ops) - 1
        after = (last,) if last >= 0 and self.ops[last].what != COMMIT else ()
        self.ops.append(Op(unit, category, what, -1, float(cycles), after=after, **more))

    def _pipe(self, what: str, columns: float, rate: float, latency: float) -> None:
        cycles = self.rows * math.ceil(columns / rate) + latency
        self._op(VFU, VECTOR, what, cycles)

    def _last_tiles(self, columns: float) -> float:
        """Columns of what the channels finish at once."""
        return min(columns, self.card.channels * CHUNK)

    # --- matmuls ---------------------------------------------------------------------------------
    def matmul(self, matmul: Matmul) -> None:
        card, own = self.card, math.ceil(matmul.k / self.boards)
        if matmul.gather:
            self.quantize(matmul.short, own)
            self._gather(f"gather {matmul.short}", own)
        columns = self._columns(matmul)
        four = matmul.layer is not None and matmul.k % GROUP == 0
        tile = four_bit_tile(matmul.k, GROUP) if four else eight_bit_tile(matmul.k)
        blocks = math.ceil(matmul.k / abi.BLOCK_K)
        lines = blocks * (abi.BLOCK_K // 4 + 2) if four else tile.lines
        tiles = math.ceil(columns / CHUNK)
        busiest = math.ceil(tiles / card.channels)  # which all wait for
        passes = math.ceil(self.rows / card.rows)
        each = max(tile.lines, tile.parts * card.part_cycles) * passes + card.tile
        x = self.rows * math.ceil(matmul.k / LINE) + card.broadcast
        late = self.rows * self._last_tiles(columns) / card.finishers - CHUNK
        reads = math.ceil(self.rows / card.rows_held)
        self._op(
            MPU, WEIGHTS, matmul.short, card.command + x + busiest * each + max(0.0, late),
            stream=reads * self._deal(lines, tiles) * lines / card.line_rate,
            bytes=float(reads * tiles * lines * LINE),
            macs=float(self.rows * matmul.k * columns),
        )  # fmt: skip

    def _deal(self, lines: int, tiles: int) -> int:
        """Tiles that the busiest channel reads, which begins where the matmul before of as long
        columns ended (`first` of the command): channels with fewer run ahead."""
        before = self.assigned[lines]
        self.assigned[lines] += tiles
        most = math.ceil((before + tiles) / self.card.channels)
        return most - math.ceil(before / self.card.channels)

    def _columns(self, matmul: Matmul) -> int:
        """Columns on the board with the largest share."""
        columns = 0
        for axis, outputs in groupby(output.axis for output in matmul.outputs):
            count, head_dim = len(list(outputs)), self.config.head_dim
            if axis in ("heads", "kv_heads"):
                columns += count * head_dim * (self.heads if axis == "heads" else self.kv_heads)
            else:
                columns += math.ceil(count * width(self.config, axis) / self.boards)
        return columns

    def quantize(self, what: str, columns: int) -> None:
        """Static scales: as the columns come. Scales of rows: the maximum as they come, an exchange
        of the boards' maxima, then a pass."""
        card = self.card
        if not card.dynamic:
            self._pipe(f"quantize {what}", 0, 1, card.pipe_latency)
            return
        self._exchange(f"maxima of {what}", self.boards)
        latency = card.pipe_latency + card.norm_rest  # a division, like a norm's
        self._pipe(f"quantize {what}", columns, card.pipe_columns, latency)

    # --- links -----------------------------------------------------------------------------------
    def _gather(self, what: str, columns: int) -> None:
        """Of INT8 columns; with `gather_overlap` only the last tiles' go after the matmul."""
        if self.boards == 1:
            return
        card = self.card
        sent = self._last_tiles(columns) if card.gather_overlap else columns
        links = 2 if self.boards > 2 else 1
        size = (self.boards - 1) * self.rows * sent / links
        cycles = self.boards / 2 * card.hop + size / LINE / card.link_lines
        if not card.gather_overlap:
            cycles += card.gather
        self._op(ROUTER, LINK, what, cycles, link_bytes=size)

    def _exchange(self, what: str, boards: int) -> None:
        """Of a few bytes of each row."""
        if boards == 1:
            return
        card = self.card
        check = 0.0 if card.gather_overlap else card.gather
        lines = (boards - 1) * self.rows / card.link_lines
        self._op(ROUTER, LINK, what, boards / 2 * card.hop + check + lines,
                 link_bytes=(boards - 1) * self.rows * float(LINE))  # fmt: skip

    # --- pipes -----------------------------------------------------------------------------------
    def embed(self, embed: Embed) -> None:
        lines = self.config.embed_dim / self.boards * 2 / LINE
        self._op(VFU, VECTOR, "embed", self.rows * lines / self.card.line_rate + self.card.latency)

    def norm(self, norm: Norm) -> None:
        """Sums: columns of a segment wait for each other, rows do not. Then a pass."""
        card, hidden = self.card, self.config.hidden
        own = math.ceil(hidden / self.boards)
        rounds = math.ceil(min(abi.SEGMENTS, abi.SEGMENTS / self.boards) / card.segments_at_once)
        columns = math.ceil(hidden / CHUNK / abi.SEGMENTS) * CHUNK
        turns = math.ceil(self.rows / card.sum_cycles)
        sums = (2 if norm.kind == "layernorm" else 1) * rounds * columns * card.sum_cycles * turns
        name = norm.name.rpartition(".")[2]
        self._op(VFU, VECTOR, f"{name} sums", sums + card.pipe_latency)
        self._exchange(f"sums of {name}", self.boards)
        self._pipe(name, own, card.pipe_columns, card.norm_rest + card.pipe_latency)

    def norm_heads(self, norm: NormHeads) -> None:
        """A head is a segment's length at most; heads are summed side by side."""
        card, heads = self.card, self.heads if norm.part == "q" else self.kv_heads
        side = math.ceil(heads / card.segments_at_once)
        sums = side * self.config.head_dim * card.sum_cycles
        columns = heads * self.config.head_dim
        self._op(VFU, VECTOR, f"{norm.part} norm sums", self.rows * sums + card.pipe_latency)
        if norm.whole:
            self._exchange(f"sums of {norm.part} norm", self.boards)
        latency = card.norm_rest + card.pipe_latency
        self._pipe(f"{norm.part} norm", columns, card.pipe_columns, latency)

    def rope(self, rope: Rope) -> None:
        columns = (self.heads + self.kv_heads) * self.config.head_dim
        self._pipe("rope", columns, self.card.pipe_columns, self.card.pipe_latency)

    def activate(self, activate: Activate) -> None:
        """The last tiles' columns; the others while later tiles are multiplied."""
        card, own = self.card, self.config.ffn / self.boards
        self._pipe("activation", self._last_tiles(own), card.activate_columns,
                   card.activate_latency)  # fmt: skip

    def refuse(self, operation: Operation) -> None:
        raise RequestError(
            f"{self.config.architecture}: the wide card has neither mixtures of experts nor layers"
            " without attention; expected a model without them"
        )

    def follow(self, operation: Operation) -> None:
        """What the finishers' columns go through as they come."""
        self._pipe(type(operation).__name__, 0, 1, self.card.pipe_latency)

    # --- K and V ---------------------------------------------------------------------------------
    def _position_lines(self) -> float:
        """Lines that hold a part of one position: two columns of 32 positions a line."""
        return KV_SIDES * self.kv_heads * self.config.head_dim / 2

    def store(self, store: StoreKv) -> None:
        """q, k and v are quantized by the rotary pipe; k and v go into the page."""
        card = self.card
        lines = self.rows * self._position_lines()
        cycles = card.pipe_latency + lines / card.store_lines + card.store_accesses * card.latency
        self._op(DMA, KV, "store", cycles)

    def commit(self) -> None:
        """Accepted rows of a tree, which lie side by side. A plain row is stored into the page."""
        if (self.step.rows == 1 and self.step.committed <= 1) or not self.step.committed:
            return
        lines = 2 * self.config.layers * self._position_lines()
        self._op(DMA, KV, COMMIT, lines / self.card.store_lines)

    def attention(self, attend: Attend) -> None:
        """K and V on the channels' INT8 lanes, tiles of 32 positions spread over them: q.k, then
        exponentials, then s.v, then quotients, one after the other. Nothing of K and V is fetched
        before the row is stored."""
        card, dim = self.card, self.config.head_dim
        step = windowed(self.step, attend.window)
        tiles = math.ceil(step.kv_positions / abi.TILE_POSITIONS) * self.kv_heads
        lines = math.ceil(tiles / card.channels) * dim / 2
        shared = self.config.heads // self.config.kv_heads  # query heads of a KV head are rows too
        passes = math.ceil(self.rows * shared / card.rows)
        products = max(lines * passes, lines / card.line_rate) + card.command + card.latency
        scores = self.heads * step.visible / card.activate_columns + card.activate_latency
        outputs = self.rows * self.heads * dim / card.pipe_columns + card.pipe_latency
        self._op(
            MPU, ATTENTION, "attention", KV_SIDES * products + scores + outputs,
            vector=scores + outputs, stream=KV_SIDES * lines / card.line_rate,
            bytes=float(KV_SIDES * tiles * dim // 2 * LINE),
            macs=2.0 * dim * self.heads * step.visible,
        )  # fmt: skip


COMMIT = "commit"
OPERATORS: dict[type[Operation], Callable[[_Builder, Any], None]] = {
    Embed: _Builder.embed,
    Norm: _Builder.norm,
    NormHeads: _Builder.norm_heads,
    Matmul: _Builder.matmul,
    Rope: _Builder.rope,
    StoreKv: _Builder.store,
    Attend: _Builder.attention,
    Activate: _Builder.activate,
    Route: _Builder.refuse,
    ExpertMatmul: _Builder.refuse,
    AddGated: _Builder.refuse,
    Recur: _Builder.refuse,
    NormGroups: _Builder.refuse,
    GateHeads: _Builder.refuse,
    JoinHeads: _Builder.refuse,
    **dict.fromkeys((AddPosition, Elementwise, PackSelected, Argmax), _Builder.follow),
}
