"""What each command of a list makes a card's units do: (kind, how often by name). The kinds and
what each count takes are a card's data (card_costs.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing.adapter_counts import down_counts, up_counts
from lora_lab.timing.attention_counts import attention_counts, busiest
from lora_lab.timing.card_step import CardRow, CardStep
from lora_lab.timing.channel_counts import channel_counts, channel_kind, on_channels
from lora_lab.timing.gather_counts import gather_counts
from lora_lab.timing.matmul_counts import (
    PER_STRIPE,
    Arrays,
    matmul_counts,
    matmul_kind,
    stripe_columns,
)
from lora_lab.timing.move_counts import commit_counts, move_counts, store_counts
from lora_lab.timing.pipe_counts import on_pipes, pipe_counts
from lora_lab.timing.vector_counts import Counts, vector_counts
from lora_sdk.compile import isa
from lora_sdk.plan.collectives import Collective
from lora_sdk.plan.tensors import adapted_specs

if TYPE_CHECKING:
    from lora_sdk.plan.model_plan import BoardPlan, Plan


@dataclass(frozen=True)
class Counting:
    """What counts depend on besides command and step. `factors`: of an adapter, by matmul, each of
    `rank` ranks. `channels` and `attentions`, attention units, `float_attentions` of them with
    lanes of FP16, of the board's card."""

    arrays: Arrays
    board: BoardPlan
    factors: Sequence[int] = ()
    rank: int = 0
    boards: int = 1
    ring: bool = False
    channels: int = 0
    attentions: int = 1
    float_attentions: int = 1

    def units_of(self, command: isa.Attention) -> int:
        """Attention units that share the command (overlays/rtl/attention/attention_units.sv)."""
        if command.cap or command.slope_kind != abi.SLOPE_NONE:
            return 1
        return self.attentions if self.board.kv.format.static else self.float_attentions


def counting(
    arrays: Arrays, plan: Plan, rank: int, attentions: int = 1, float_attentions: int = 1
) -> Counting:
    """For the board at `rank`. `attentions`: attention units of a card with channels, of which
    `float_attentions` have lanes of FP16."""
    board = plan.boards[rank]
    specs = adapted_specs(plan.config, board.share) if plan.adapters.rank else ()
    factors = [len(spec.parts) for spec in specs]
    share = plan.adapters.share(plan.stage_boards)
    channels = plan.overlay.channels
    return Counting(
        arrays, board, factors, share, plan.size, plan.route.ring, channels,
        attentions if channels else 1, float_attentions if channels else 1,
    )  # fmt: skip


UPDATE = "update"  # the kind of what an adapter adds to a stripe
Found = tuple[str, Counts]


def unit_counts(its: Counting, command: isa.Command, step: CardStep) -> Found | None:
    """Of a command in a step; None where no unit sees it. RequestError names one without counts."""
    rows = step.of(command.flags)
    if isinstance(command, isa.KvCommit):
        if not step.commits:
            return None
        return "kv_commit", commit_counts(its.board.kv, command, step.commits)
    if not rows or command.UNIT == abi.UNIT_CONTROL:
        return None
    count = COUNTS.get(type(command))
    if count is None:
        raise RequestError(f"command {command.what!r} ({type(command).__name__}) has no counts")
    return count(its, command, rows)


def _matmul(its: Counting, command: isa.Matrix, rows: Sequence[CardRow]) -> Found:
    if on_channels(its.channels, command):
        return channel_kind(command), channel_counts(its.channels, command, len(rows))
    return matmul_kind(command), matmul_counts(its.arrays, command, len(rows))


def _adapter(its: Counting, command: isa.Adapter, rows: Sequence[CardRow]) -> Found:
    adapted, factors = _adapted(rows), its.factors[command.adapter]
    store = its.arrays.store
    return "adapter", down_counts(command, len(rows), adapted, factors, its.rank, store)


def _adapted(rows: Sequence[CardRow]) -> int:
    return sum(row.adapter >= 0 for row in rows)


@dataclass(frozen=True)
class Update:
    """What an adapter adds to a matmul: of each of `stripes` stripes of the rows that have one,
    `array` of what the array does in a stripe, and `unit` of what the adapters' unit does beside
    it."""

    stripes: int
    kind: str
    array: Counts
    unit: Counts


def update(its: Counting, command: isa.Matrix, step: CardStep) -> Update | None:
    """Of a matmul in a step; None where no row has an adapter."""
    adapted = _adapted(step.of(command.flags)) if command.adapter else 0
    if not adapted:
        return None
    kind, columns = matmul_kind(command), stripe_columns(its.arrays, command)
    array = matmul_counts(its.arrays, replace(command, n=columns), 1)
    array = {name: count for name, count in array.items() if name in PER_STRIPE}
    unit = up_counts(columns, its.factors[command.adapter - 1], its.rank)
    return Update(adapted * ceil(command.n / columns), kind, array, unit)


def _vector(its: Counting, command: isa.Vector, rows: Sequence[CardRow]) -> Found:
    kind = abi.names("VEC_")[command.op].removeprefix("LORA_VEC_").lower()
    if on_pipes(its.channels, command):
        return f"{kind}_pipes", pipe_counts(command, len(rows))
    return kind, vector_counts(command, len(rows), its.board.kv.head_dim)


def _attention(its: Counting, command: isa.Attention, rows: Sequence[CardRow]) -> Found:
    kind = f"attention_{its.board.kv.kind.replace('-', '_')}"
    own = busiest(command, its.units_of(command))
    return kind, attention_counts(its.board.kv, own, rows)


def _store(its: Counting, command: isa.KvStore, rows: Sequence[CardRow]) -> Found:
    kind = f"kv_store_{its.board.kv.kind.replace('-', '_')}"
    return kind, store_counts(its.board.kv, command, len(rows))


def _move(its: Counting, command: isa.MoveRows, rows: Sequence[CardRow]) -> Found:
    return "move_rows", move_counts(command, len(rows))


def _gather(its: Counting, command: isa.Gather, rows: Sequence[CardRow]) -> Found:
    widths = command.columns, command.share_unit, command.segment_unit, command.element_bytes
    if command.span != abi.SPAN_ALL:
        raise RequestError(f"command {command.what!r}: gathers of stages have no counts")
    return "gather", gather_counts(Collective("", *widths), its.boards, its.ring, len(rows))


COUNTS: dict[type[isa.Command], Callable[[Counting, Any, Sequence[CardRow]], Found]] = {
    isa.Matrix: _matmul,
    isa.Adapter: _adapter,
    isa.Vector: _vector,
    isa.Attention: _attention,
    isa.KvStore: _store,
    isa.MoveRows: _move,
    isa.Gather: _gather,
}
