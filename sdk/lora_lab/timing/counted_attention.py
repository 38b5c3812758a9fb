"""What attention takes in the units that a design of our own was counted with: slower than the
ideal ones that its time is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lora_host.boards import load_board
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_host.overlay import load_overlay
from lora_host.sim import MEMORY_NS
from lora_lab.timing import step as steps
from lora_lab.timing.card_step import card_step_of
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.fit import basis, fit
from lora_sdk.compile import isa
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.placement import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lora_lab.timing.designs import ArrayDesign, Design
    from lora_sdk.model.spec import ModelConfig

LISTS = "lora_w4a8_u280"  # whose commands the units are timed by
UNIT = "attention"  # of budget.yaml


@dataclass(frozen=True)
class Case:
    """A plain token: boards that share its heads, its context, and the milliseconds of attention
    that its time has."""

    boards: int
    context: int
    charged_ms: float


def counted_units(design: Design) -> int:
    """Attention units in the counts that stand for the design (fit.basis), 0 without counts."""
    found = basis(design)
    if found is None:
        return 0
    return sum(part.instances for part in fit(found.name).parts if part.name == UNIT)


def added_ms(design: ArrayDesign, config: ModelConfig, case: Case) -> float | None:
    """Milliseconds that the counted units would add to a token. None: the design has no counts, or
    the model cannot be placed."""
    units = counted_units(design)
    try:
        if units:
            found = attention_ms(config, case.boards, case.context, units, design.clock_hz)
            return max(0.0, found - case.charged_ms)
    except RequestError:
        pass
    return None


def attention_ms(config: ModelConfig, boards: int, context: int, units: int, hz: float) -> float:
    """Milliseconds of one plain token's attention, INT8 K and V, in `units` units as simulated,
    which share the heads. RequestError: the model cannot be placed."""
    overlay = load_overlay(LISTS)
    one = quantized_as(replace(config, layers=1, quantization=None), overlay.precision)
    assert one.quantization is not None
    one = replace(one, quantization=replace(one.quantization, kv="int8"))
    plan = make_plan(one, overlay, load_board(overlay.board.name), boards, context)
    commands = lower(one, plan, 0, unit_scales(one))
    card = CardTiming(plan, 0, commands, MEMORY_NS * 1e-9 * hz)
    step = card_step_of(steps.decode(context))
    cycles = sum(card.command(c, step) for c in commands if isinstance(c, isa.Attention))
    return cycles * config.layers / units / hz * 1e3


def attention_note(
    design: ArrayDesign, config: ModelConfig, cases: Sequence[Case]
) -> tuple[str, ...]:
    """What every report of these tokens says of attention: nothing for a design without counts."""
    units = counted_units(design)
    if not units:
        return ()
    whose = f"its base {design.base}" if design.base else "the design"
    note = (
        f"time of ideal units: attention has the whole array; {whose} was counted with "
        f"{counted(units, 'attention unit')}, which are slower"
    )
    more = [(case, added_ms(design, config, case)) for case in cases]
    told = [f"{ms:.1f} ms{_where(case, cases)}" for case, ms in more if ms is not None]
    if not told:
        return (note,)
    told[0] = told[0].replace(" ms", " ms to a plain token", 1)
    return (f"{note}: attention alone would add {', '.join(told)}",)


def _where(case: Case, cases: Sequence[Case]) -> str:
    """The first case is told in full, of the others what differs."""
    first = case is cases[0]
    context = first or any(one.context != case.context for one in cases)
    boards = any(one.boards != case.boards for one in cases)
    return f" at context {case.context}" * context + f" on {counted(case.boards, 'board')}" * boards
