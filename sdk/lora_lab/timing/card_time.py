"""Modelled cycles of steps on a card whose units' costs are counted (card_costs.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lora_lab.timing.card_costs import CONTROL, CardCosts, card_costs
from lora_lab.timing.card_step import CardStep
from lora_lab.timing.channel_counts import AHEAD, LINES, channel_lines, on_channels
from lora_lab.timing.list_ops import fixed_fields
from lora_lab.timing.ops import ATTENTION, DMA, KV, LINK, MPU, ROUTER, VECTOR, VFU, WEIGHTS, Op
from lora_lab.timing.ops import CONTROL as CONTROL_UNIT
from lora_lab.timing.schedule import Timeline, schedule
from lora_lab.timing.sequencer import sequencer_data
from lora_lab.timing.unit_counts import UPDATE, counting, unit_counts, update
from lora_lab.timing.vector_counts import Counts
from lora_sdk.compile import isa
from lora_sdk.plan.kv import tiles
from lora_sdk.plan.model_plan import Plan

# What counts of a command depend on, besides step and plan. Adapters' tables are left alone.
SIZES = (
    "flags", "k", "n", "weight_type", "merge", "bank_first", "bank_count", "adapter", "op",
    "columns", "extra", "first", "q_heads", "kv_heads", "head_dim", "window", "bytes", "share_unit",
    "segment_unit", "element_bytes", "span", "layers",
)  # fmt: skip
# Of a card with channels: what reads and writes the on-chip buffer alone, weights read ahead; and
# what reads a table in a bank besides.
ONCHIP_KINDS = frozenset(
    {"w4a8_channels", "w8a8_channels", "residual_pipes", "residual_scaled_pipes", "quantize_pipes",
     "rms_sums_pipes", "swiglu_pipes"}
)  # fmt: skip
TABLE_KINDS = frozenset({"rms_apply_pipes", "rope_pipes"})
CATEGORY = {MPU: WEIGHTS, VFU: VECTOR, ROUTER: LINK, DMA: KV, CONTROL_UNIT: KV}


@dataclass(frozen=True)
class CardTime:
    """A step: cycles from doorbell to done, of the units' part, and of each command."""

    cycles: float
    timeline: Timeline
    ops: Sequence[Op]


class CardTiming:
    """Times the list of the board at `rank` where memory answers after `latency` cycles, the
    on-chip buffer after `onchip`, as late if None."""

    def __init__(
        self, plan: Plan, rank: int, commands: Sequence[isa.Command], latency: float,
        costs: CardCosts | None = None, onchip: float | None = None,
    ) -> None:  # fmt: skip
        self.costs = costs or card_costs()
        self.latency, self.onchip = latency, latency if onchip is None else onchip
        self._counting = counting(
            self.costs.arrays(latency), plan, rank, self.costs.attentions,
            self.costs.float_attentions,
        )  # fmt: skip
        self._fields = list(fixed_fields(commands, plan.stage_boards))
        self._sizes = [
            (type(one), *(getattr(one, name, None) for name in SIZES)) for one in commands
        ]
        self._votes = _step_cycles(plan.size, latency) - _step_cycles(1, latency)

    def command(self, command: isa.Command, step: CardStep) -> float:
        """Cycles of a command from its start to its end; 0 where no unit sees it."""
        found = unit_counts(self._counting, command, step)
        if found is None:
            return 0.0
        added = self._added(command, step) if isinstance(command, isa.Matrix) else 0.0
        return self._cycles(*found) + added

    def _cycles(self, kind: str, counts: Counts) -> float:
        return self.costs.cycles(kind, counts, self._latency(kind))

    def _latency(self, kind: str) -> float:
        """What a command of this kind waits for: the on-chip buffer, memory, or both in turn."""
        if kind in ONCHIP_KINDS:
            return self.onchip
        return (self.onchip + self.latency) / 2 if kind in TABLE_KINDS else self.latency

    def _added(self, command: isa.Matrix, step: CardStep) -> float:
        """What the array waits for the adapters' unit."""
        found = update(self._counting, command, step)
        if found is None:
            return 0.0
        waits = self._cycles(UPDATE, found.unit) - self._cycles(found.kind, found.array)
        return found.stripes * max(0.0, waits)

    def step(self, step: CardStep) -> CardTime:
        """Of one step. Equal commands of other layers take as long."""
        known: dict[object, float] = {}
        ops = []
        for (command, fields, _), sizes in zip(self._fields, self._sizes, strict=True):
            if sizes not in known:
                known[sizes] = self.command(command, step)
            category = CATEGORY[fields["unit"]]
            if isinstance(command, isa.Attention):
                category = ATTENTION
            op = Op(**fields, start=self.costs.between, category=category, compute=known[sizes])
            op.stream = self._stream(command, step)
            ops.append(op)
        ops = [op if op.compute else replace(op, start=0.0) for op in ops]
        timeline = schedule(ops, LINES / self.costs.line_rate, keep=True, ahead=AHEAD)
        return CardTime(timeline.cycles + self.besides(step), timeline, ops)

    def _stream(self, command: isa.Command, step: CardStep) -> float:
        """Cycles in which a channel's bank gives the lines of a matmul: also under what is before
        it, as far as they fit the channel's buffer."""
        channels, rows = self._counting.channels, step.of(command.flags)
        if not (rows and isinstance(command, isa.Matrix) and on_channels(channels, command)):
            return 0.0
        return channel_lines(channels, command, len(rows)) / self.costs.line_rate

    def besides(self, step: CardStep) -> float:
        """Cycles before the first command and after the last one."""
        return self._cycles(CONTROL, besides_counts(step)) + self._votes


def _step_cycles(boards: int, latency: float) -> float:
    """What control takes of a step besides its commands (data/sequencer.yaml): more boards have
    more votes."""
    of_list = max(
        (entry for entry in sequencer_data()["lists"] if entry["boards"] <= boards),
        key=lambda entry: int(entry["boards"]),
    )
    cycles, reads = of_list["step"]
    return float(cycles + reads * latency)


def besides_counts(step: CardStep) -> Counts:
    """What control does besides dispatching commands: how often, by name. `operation`: of a commit;
    `tile`: of the page table, that it looks at."""
    return {
        "step": 1,
        "row": len(step.rows),
        "operation": len(step.commits),
        "commit": sum(map(len, step.commits)),
        "tile": max((tiles(row.visible) for row in step.rows), default=0),
    }
