"""No two commands may touch the same bytes at the same time, on any board, whatever the timing.

The lists of all boards are turned into one graph of what surely happens before what: order within a
unit, signals and waits, and arrival of gathered columns after their owners' gathers have started.
Then every two commands of a board of which one writes what the other touches must be ordered as in
the list."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest

from lora_host import abi
from lora_host.overlay import COLUMN, load_overlay
from lora_sdk.compile import lower as lowering
from lora_sdk.compile.isa import (
    Adapter,
    Attention,
    Ballot,
    Command,
    Experts,
    Gather,
    KvCommit,
    KvStore,
    Matrix,
    MoveRows,
    Recurrence,
    Vector,
)  # fmt: skip
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.partition import shard
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.tensors import padded
from tests.unit.plan_rig import (
    EXPERTS,
    EXPERTS_GATED,
    EXPERTS_NARROW,
    EXPERTS_SHARED,
    EXPERTS_SIGMOID,
    EXPERTS_WIDE,
    GATED_DELTA,
    GPT2,
    LATENT,
    LATENT_NARROW,
    LATENT_WIDE,
    LLAMA,
    NARROW,
    OPT_POST,
    SHORT_CONV,
    board,
    quantized,
)

ONCHIP = abi.BANK_ONCHIP
ROWS = 3
MAXIMA_BYTES = 4 * abi.ROW_MAXIMA  # before the scale of a row
LLAMA_WIDE = replace(  # whole groups of 32
    LLAMA, hidden=160, ffn=224, embed_dim=160, heads=10, kv_heads=5
)
GPT2_WIDE = replace(GPT2, hidden=160, ffn=224, embed_dim=160, heads=10, kv_heads=10)
QUANTIZED = {
    "llama_w8a8": (LLAMA_WIDE, "w8a8"),
    "gpt2_w8a8_heads": (GPT2_WIDE, "w8a8_heads"),
    "opt_post_w8a8": (OPT_POST, "w8a8"),
    "llama_w4a8_order": (LLAMA_WIDE, "w4a8_order"),
    "llama_w8a8_dynamic": (LLAMA, "w8a8_dynamic"),
    "llama_w4a8_order_dynamic": (LLAMA_WIDE, "w4a8_order_dynamic"),
    "narrow_dynamic": (NARROW, "w8a8_dynamic"),
    "narrow_post_norms_dynamic": (replace(NARROW, branch_norms="alone"), "w8a8_dynamic"),
    "narrow_wide_ffn_dynamic": (replace(NARROW, ffn=384), "w8a8_dynamic"),
    "narrow_w8a8_heads": (NARROW, "w8a8_heads"),
    "llama_w4a16_order": (LLAMA_WIDE, "w4a16_order"),
    "experts_w8a8": (EXPERTS_WIDE, "w8a8"),
    "experts_w4a8_dynamic": (EXPERTS_WIDE, "w4a8_dynamic"),
    "experts_narrow_dynamic": (EXPERTS_NARROW, "w8a8_dynamic"),
    "latent_w8a8": (LATENT_WIDE, "w8a8"),
    "latent_w8a8_heads": (LATENT_WIDE, "w8a8_heads"),
    "latent_w4a8_dynamic": (LATENT_WIDE, "w4a8_dynamic"),
    "latent_narrow_dynamic": (LATENT_NARROW, "w8a8_dynamic"),
}
MODELS = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "opt_post": OPT_POST,
    "opt_pre_projected": replace(OPT_POST, norm_first=True),
    "narrow": NARROW,
    "narrow_post": replace(OPT_POST, hidden=48, heads=8, kv_heads=8, head_dim=6, ffn=40),
    "narrow_wide_ffn": replace(NARROW, ffn=384),
    "head_norms": replace(LLAMA, head_norms="heads", branch_norms="both"),
    "row_norms": replace(LLAMA, head_norms="row", branch_norms="alone"),
    "row_norms_narrow": replace(NARROW, head_norms="row", branch_norms="alone"),
    "capped": replace(
        LLAMA,
        activation="gelu_tanh",
        branch_norms="both",
        one_plus=True,
        stream_scale=2.0**-6,
        score_cap=50.0,
        logit_cap=30.0,
        local_rope=LLAMA.rope,
        windows=(0, 7, 0),
        local_layers=frozenset([1]),
    ),
    "experts": EXPERTS,
    "experts_narrow": EXPERTS_NARROW,
    "experts_gated": EXPERTS_GATED,
    "experts_shared": EXPERTS_SHARED,
    "experts_sigmoid": EXPERTS_SIGMOID,
    "latent": LATENT,
    "latent_narrow": LATENT_NARROW,
    "short_conv": SHORT_CONV,
    "gated_delta": GATED_DELTA,
    "gated_delta_last": replace(
        GATED_DELTA, recurrent=replace(GATED_DELTA.recurrent, layers=frozenset({2}))
    ),
    "scaled": replace(
        NARROW, branch_scale=0.5, embed_scale=3.0, logit_scale=0.25, unrotated=frozenset([1])
    ),
}
Interval = tuple[object, int, int]  # (bank or name, start, end)


@dataclass
class Access:
    reads: list[Interval] = field(default_factory=list)
    writes: list[Interval] = field(default_factory=list)


def rows_of(bank: int, offset: int, stride: int, width: int) -> list[Interval]:
    return [(bank, offset + i * stride, offset + i * stride + width) for i in range(ROWS)]


def access_matrix(c: Matrix) -> Access:
    width = c.n * (4 if c.y_type == abi.FP32 else 2)
    integer = c.weight_type & abi.WEIGHT_TYPE_MASK in (abi.WEIGHT_INT8, abi.WEIGHT_W4A8)
    x_bytes = c.k * (1 if integer else 2)
    own = []
    if c.flags & abi.FLAG_ROW_SCALES:
        own = rows_of(ONCHIP, c.x_offset + padded(c.k) + MAXIMA_BYTES, c.x_stride, 4)
    h = rows_of(ONCHIP, c.h_offset, c.h_stride, c.h_stride) if c.adapter else []
    return Access(
        rows_of(c.x_bank, c.x_offset, c.x_stride, x_bytes) + own + h,
        rows_of(c.y_bank, c.y_offset, c.y_stride, width),
    )


def access_adapter(c: Adapter) -> Access:
    return Access(
        rows_of(ONCHIP, c.x_offset, c.x_stride, c.k * 2),
        rows_of(ONCHIP, c.h_offset, c.h_stride, c.h_stride),
    )


def access_experts(c: Experts) -> Access:
    combines = bool(c.flags & abi.FLAG_COMBINE)
    integer = c.weight_type & abi.WEIGHT_TYPE_MASK in (abi.WEIGHT_INT8, abi.WEIGHT_W4A8)
    x = c.k * (1 if integer else 2) * (c.chosen if combines else 1)
    y = c.n * 2 * (1 if combines else c.chosen)
    own = []
    if c.flags & abi.FLAG_ROW_SCALES:
        own = rows_of(ONCHIP, c.x_offset + padded(x) + MAXIMA_BYTES, c.x_stride, 4)
    chosen = rows_of(ONCHIP, c.chosen_offset, c.chosen_stride, c.chosen * 8)
    return Access(
        rows_of(ONCHIP, c.x_offset, c.x_stride, x) + chosen + own,
        rows_of(ONCHIP, c.y_offset, c.y_stride, y),
    )


def access_vector(c: Vector) -> Access:
    x = rows_of(ONCHIP, c.x_offset, c.x_stride, c.columns * 2)
    y = rows_of(c.y_bank, c.y_offset, c.y_stride, c.columns * 2)
    record = 8 if c.op in (abi.VEC_LN_SUMS, abi.VEC_LN_APPLY) else 4
    sums = rows_of(ONCHIP, c.z_offset, c.z_stride, 8 * record)
    z = rows_of(ONCHIP, c.z_offset, c.z_stride, c.columns * 2)
    if c.op in (abi.VEC_EMBED, abi.VEC_EMBED_SCALED):
        return Access([], y)
    if c.op in (abi.VEC_ROUTE, abi.VEC_ROUTE_CHOSEN, abi.VEC_ROUTE_SIGMOID):
        logits = rows_of(ONCHIP, c.x_offset, c.x_stride, c.columns * 4)
        return Access(logits, rows_of(ONCHIP, c.y_offset, c.y_stride, c.extra * 8))
    if c.op == abi.VEC_ADD_GATED:
        return Access(x + y + rows_of(ONCHIP, c.z_offset, c.z_stride, 4), y)
    if c.op == abi.VEC_JOIN_HEADS:
        heads = c.columns // c.extra
        own = rows_of(ONCHIP, c.x_offset, c.x_stride, heads * c.first * 2)
        shared = rows_of(ONCHIP, c.z_offset, c.z_stride, c.a_line * c.b_line * 2)
        return Access(own + (shared if c.a_line else []), y)
    if c.op in (abi.VEC_LN_SUMS, abi.VEC_RMS_SUMS):
        return Access(x, sums)
    if c.op in (abi.VEC_LN_APPLY, abi.VEC_RMS_APPLY):
        return Access(x + sums, y)
    if c.op == abi.VEC_ROPE:
        return Access(x, x)
    if c.op in (abi.VEC_HEAD_SUMS, abi.VEC_RMS_ROW):
        head_dim = LLAMA.head_dim
        if c.op == abi.VEC_RMS_ROW:
            return Access(x + rows_of(ONCHIP, c.z_offset, c.z_stride, c.extra // head_dim * 4), y)
        mine = c.z_offset + c.first // head_dim * 4
        return Access(x, rows_of(ONCHIP, mine, c.z_stride, c.columns // head_dim * 4))
    if c.op in (abi.VEC_SCALE, abi.VEC_SOFTCAP):
        floats = rows_of(c.y_bank, c.y_offset, c.y_stride, c.columns * 4)
        return Access(floats, floats)
    if c.op in (
        abi.VEC_RESIDUAL,
        abi.VEC_RESIDUAL_SCALED,
        abi.VEC_SWIGLU,
        abi.VEC_GEGLU,
        abi.VEC_GATE,
    ):
        return Access(x + z, y)
    if c.op in (abi.VEC_QUANTIZE, abi.VEC_QUANTIZE_HEADS):
        y = rows_of(c.y_bank, c.y_offset, c.y_stride, c.columns)
        if c.op == abi.VEC_QUANTIZE_HEADS:
            y += rows_of(ONCHIP, c.z_offset, c.z_stride, c.columns // c.extra * 2)
        return Access(x, y)
    if c.op == abi.VEC_ROW_MAX:
        return Access(x, rows_of(ONCHIP, c.z_offset + 4 * c.first, c.z_stride, 4))
    if c.op == abi.VEC_QUANTIZE_ROW:
        y = rows_of(c.y_bank, c.y_offset, c.y_stride, c.columns)
        y += rows_of(ONCHIP, c.z_offset + MAXIMA_BYTES, c.z_stride, 4)
        return Access(x + rows_of(ONCHIP, c.z_offset, c.z_stride, 4 * c.extra), y)
    if c.op == abi.VEC_PERMUTE:
        x = rows_of(ONCHIP, c.x_offset, c.x_stride, c.columns * c.extra)
        return Access(x, rows_of(c.y_bank, c.y_offset, c.y_stride, c.columns * c.extra))
    if c.op == abi.VEC_ARGMAX:
        logits = rows_of(c.y_bank, c.x_offset, c.x_stride, c.columns * 4)
        return Access(logits, rows_of(c.y_bank, c.y_offset, c.y_stride, 8))
    return Access(x, y)


def access_attention(c: Attention) -> Access:
    width = c.q_heads * c.head_dim * 2
    read = width // 2 if c.v_scale else width  # q is INT8 where attention is
    return Access(
        [*rows_of(ONCHIP, c.q_offset, c.q_stride, read), ("kv", c.kv_layer, c.kv_layer + 1)],
        rows_of(ONCHIP, c.y_offset, c.y_stride, width),
    )


def access_recurrence(c: Recurrence) -> Access:
    kept = ("kv", c.kv_layer, c.kv_layer + c.planes)
    head = c.value_heads * c.value_columns
    each = 2 * c.key_heads * c.key_columns + head + 2 * c.value_heads
    if c.form == abi.RECURRENCE_SHORT_CONV:
        each = 2 * head
    heads = -(-(c.y_first + c.y_columns) // head)  # KV heads at least
    return Access(
        [*rows_of(ONCHIP, c.x_offset, c.x_stride, (each * heads + c.y_columns) * 2), kept],
        [*rows_of(ONCHIP, c.y_offset, c.y_stride, c.y_columns * 2), kept],
    )


def access_kv_store(c: KvStore) -> Access:
    width = c.v_offset - c.k_offset  # they stand side by side in every type
    reads = rows_of(ONCHIP, c.k_offset, c.stride, width)
    reads += rows_of(ONCHIP, c.v_offset, c.stride, width)
    if c.scale_stride:
        for offset in (c.k_scales, c.v_scales):
            reads += rows_of(ONCHIP, offset, c.scale_stride, c.kv_heads * 2)
    return Access(reads, [("kv", c.kv_layer, c.kv_layer + 1)])


def access_move(c: MoveRows) -> Access:
    rows = 1 if c.flags & abi.FLAG_VOTES else ROWS
    return Access(
        rows_of(c.x_bank, c.x_offset, c.x_stride, c.bytes)[:rows],
        rows_of(c.y_bank, c.y_offset, c.y_stride, c.bytes)[:rows],
    )


def access(command: Command) -> Access:
    """What a command touches, but for gathers, which touch in two phases."""
    if isinstance(command, KvCommit):
        end = command.kv_layer + command.layers if command.layers else 1 << 30
        return Access([], [("kv", command.kv_layer, end)])
    known = {
        Matrix: access_matrix,
        Adapter: access_adapter,
        Experts: access_experts,
        Vector: access_vector,
        Attention: access_attention,
        Recurrence: access_recurrence,
        KvStore: access_kv_store,
        MoveRows: access_move,
    }
    return known[type(command)](command)


def split_columns(c: Gather, rank: int, boards: int) -> tuple[list[Interval], list[Interval]]:
    """(own columns, the others' columns) of a gather's rows."""
    own = shard(c.columns, c.share_unit, rank, boards)
    e = c.element_bytes
    pieces = ((own.start, own.stop), (0, own.start), (own.stop, c.columns))
    mine, left, right = (
        rows_of(ONCHIP, c.offset + first * e, c.stride, (last - first) * e)
        for first, last in pieces
    )
    return mine, left + right


class Graph:
    """Nodes are (rank, index, phase): "start", "data" (a gather's columns are here) and "done"."""

    def __init__(self, lists: list[list[Command]]) -> None:
        self.lists = lists
        self.after: dict[tuple[int, int, str], set[tuple[int, int, str]]] = defaultdict(set)
        for rank, commands in enumerate(lists):
            self._local(rank, commands)
        self._links()
        self._reach: dict[tuple[int, int, str], set[tuple[int, int, str]]] = {}

    def _local(self, rank: int, commands: list[Command]) -> None:
        last: dict[int, int] = {}
        signals: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for index, command in enumerate(commands):
            start, done = (rank, index, "start"), (rank, index, "done")
            self.after[start].add((rank, index, "data"))
            self.after[rank, index, "data"].add(done)
            if isinstance(command, Ballot):  # all units idle: nothing before it runs behind it
                for before in range(index):
                    self.after[rank, before, "done"].add(start)
                last = dict.fromkeys(range(abi.UNITS), index)
                continue
            if command.UNIT in last:
                self.after[rank, last[command.UNIT], "done"].add(start)
            last[command.UNIT] = index
            if command.wait_counter != abi.NO_COUNTER:
                sources = signals[command.wait_counter]
                assert len(sources) == 1 or command.wait_value == len(sources)
                for source, phase in sources:
                    self.after[rank, source, phase].add(start)
            by_segment = bool(command.flags & abi.FLAG_SIGNAL_SEGMENTS)
            signals[command.signal_counter].append((index, "data" if by_segment else "done"))

    def _links(self) -> None:
        boards = len(self.lists)
        gathers: dict[int, list[tuple[int, int, Gather]]] = defaultdict(list)
        for rank, commands in enumerate(self.lists):
            for index, command in enumerate(commands):
                if isinstance(command, Gather):
                    gathers[command.collective].append((rank, index, command))
        for found in gathers.values():
            assert len(found) == boards
            for rank, index, command in found:
                if shard(command.columns, command.share_unit, rank, boards):
                    for other, other_index, _ in found:
                        if other != rank:
                            self.after[rank, index, "start"].add((other, other_index, "data"))

    def reach(self, node: tuple[int, int, str]) -> set[tuple[int, int, str]]:
        if node not in self._reach:
            seen, open_nodes = set(), [node]
            while open_nodes:
                for following in self.after[open_nodes.pop()]:
                    if following not in seen:
                        seen.add(following)
                        open_nodes.append(following)
            self._reach[node] = seen
        return self._reach[node]


def touches(
    rank: int, index: int, command: Command, boards: int
) -> list[tuple[int, str, list[Interval], bool]]:
    """(index, last phase, intervals, writes) of a command."""
    if isinstance(command, Gather):
        own, others = split_columns(command, rank, boards)
        return [(index, "done", own, False), (index, "data", others, True)]
    found = access(command)
    return [(index, "done", found.reads, False), (index, "done", found.writes, True)]


def overlap(a: list[Interval], b: list[Interval]) -> bool:
    return any(x[0] == y[0] and x[1] < y[2] and y[1] < x[2] for x in a for y in b)


def hazards(lists: list[list[Command]]) -> list[str]:
    graph = Graph(lists)
    found = []
    for rank, commands in enumerate(lists):
        spans = [
            span
            for index, command in enumerate(commands)
            if command.UNIT != abi.UNIT_CONTROL
            for span in touches(rank, index, command, len(lists))
        ]
        for place, (index, phase, intervals, writes) in enumerate(spans):
            for later, _, others, other_writes in spans[place + 1 :]:
                if later == index or not (writes or other_writes):
                    continue
                if not overlap(intervals, others):
                    continue
                if (rank, later, "start") not in graph.reach((rank, index, phase)):
                    found.append(f"rank {rank}: {commands[index]} and {commands[later]}")
    return found


def lists_of(
    config,
    boards: int,
    taps: tuple[int, ...] = (0, 1),
    adapters: AdapterOptions | None = None,
    final: bool = True,
    columns: bool = False,
) -> tuple[Plan, list[list[Command]]]:
    chosen = load_overlay(choose_overlay(config, "u280"))
    if columns:
        chosen = replace(chosen, merge=COLUMN)
    plan = make_plan(
        config, chosen, board(), boards, hidden_taps=taps, adapters=adapters, final_states=final
    )
    scales = unit_scales(config)
    return plan, [lowering.lower(config, plan, rank, scales) for rank in range(boards)]


@pytest.mark.parametrize("all_rows", [False, True])
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_no_command_overwrites_what_another_still_needs(
    config, boards: int, all_rows: bool
) -> None:
    """Also where the last layer's output is tapped, which makes it work on all rows."""
    _, lists = lists_of(config, boards, (0, 1, config.layers) if all_rows else (0, 1))
    assert hazards(lists) == []


MANY = {  # enough heads for boards that share segments; fewer units of columns than boards
    "llama": replace(LLAMA, heads=16, kv_heads=2, head_dim=18, hidden=288, embed_dim=288),
    "opt_post": replace(OPT_POST, heads=16, kv_heads=16, head_dim=18, hidden=288),
}


@pytest.mark.parametrize("scheme", [None, "w8a8_dynamic"])
@pytest.mark.parametrize("config", MANY.values(), ids=MANY)
def test_nor_where_boards_share_segments(config, scheme: str | None) -> None:
    """Norms gather the row itself; rows with their own scales are quantized behind the gather."""
    config = replace(config, layers=1)
    _, lists = lists_of(quantized(config, scheme) if scheme else config, 16)
    assert hazards(lists) == []


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize(("config", "scheme"), QUANTIZED.values(), ids=QUANTIZED)
def test_nor_of_a_quantized_model(config, scheme: str, boards: int, columns: bool) -> None:
    """Also where q is rotated and quantized behind the store of K and V."""
    _, lists = lists_of(quantized(config, scheme), boards, columns=columns)
    assert hazards(lists) == []


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_nor_with_a_commit_a_layer(config, boards: int) -> None:
    """Where columns have banks of their own. Layers are committed in order, each before its store
    and attention, and behind the attention of the layer before."""
    _, lists = lists_of(config, boards, columns=True)
    assert hazards(lists) == []
    for rank, commands in enumerate(lists):
        graph = Graph(lists)
        commits = [i for i, one in enumerate(commands) if isinstance(one, KvCommit)]
        attends = [i for i, one in enumerate(commands) if isinstance(one, Attention | Recurrence)]
        assert [(commands[i].kv_layer, commands[i].layers) for i in commits] == [
            (config.planes_of(range(layer)).stop, config.planes(layer))
            for layer in range(config.layers)
        ]
        for commit, attend in zip(commits, attends, strict=True):
            assert (rank, attend, "start") in graph.reach((rank, commit, "done"))
        for commit, attend in zip(commits[1:], attends, strict=False):
            assert (rank, commit, "start") in graph.reach((rank, attend, "done"))


@pytest.mark.parametrize("mode", ["auto", "s"])
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8_order", "w4a8_order_dynamic"])
def test_rows_quantized_behind_their_gather(scheme: str, mode: str) -> None:
    """With adapter slots the whole row is quantized, after the adapters' products are started."""
    options = AdapterOptions(slots=2, max_rank=8, mode=mode)
    _, lists = lists_of(quantized(LLAMA_WIDE, scheme), 4, adapters=options)
    assert hazards(lists) == []


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("scheme", [None, "w8a8", "w4a8_order", "w8a8_dynamic"])
def test_every_wait_is_needed(boards: int, scheme: str | None) -> None:
    """Taking any one wait out must show as a hazard: so the test above can fail."""
    config = replace(GPT2, layers=1)
    if scheme is not None:
        config = quantized(replace(GPT2_WIDE, layers=1), scheme)
    _, lists = lists_of(config, boards, taps=())
    waiting = [i for i, c in enumerate(lists[0]) if c.wait_counter != abi.NO_COUNTER]
    assert len(waiting) >= 8
    for index in waiting:
        changed = list(lists[0])
        changed[index] = replace(changed[index], wait_counter=abi.NO_COUNTER)
        assert hazards([changed, *lists[1:]]), str(changed[index])
