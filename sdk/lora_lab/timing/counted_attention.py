"""What attention takes in the units that a design of our own was counted with: slower than the
ideal ones that its time is of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host.boards import load_board
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_host.overlay import load_overlay
from lora_host.sim import MEMORY_NS
from lora_lab.timing import step as steps
from lora_lab.timing.card_step import card_step_of
from lora_lab.timing.card_time import CardTiming
from lora_lab.timing.designs import ArrayDesign, design_names, load_design
from lora_lab.timing.fit import fit, fit_names
from lora_sdk.compile import isa
from lora_sdk.compile.lower import lower
from lora_sdk.model.quantization import unit_scales
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.placement import make_plan

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

LISTS = "lora_w4a8_u280"  # whose commands the units are timed by
UNIT = "attention"  # of budget.yaml


def counted_units(design: ArrayDesign) -> int:
    """Attention units in the design's counts, 0 without counts."""
    shipped = design.name in fit_names() and design.name in design_names()
    if not shipped or design != load_design(design.name):
        return 0
    return sum(part.instances for part in fit(design.name).parts if part.name == UNIT)


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
    design: ArrayDesign, config: ModelConfig, boards: int, context: int, modelled_ms: float
) -> str | None:
    """What a report says of attention, of which `modelled_ms` of a token are charged. None for a
    design without counts."""
    units = counted_units(design)
    if not units:
        return None
    note = (
        "time of ideal units: attention has the whole array; the design was counted with "
        f"{counted(units, 'attention unit')}, which are slower"
    )
    try:
        found = attention_ms(config, boards, context, units, design.clock_hz)
    except RequestError:
        return note
    more = max(0.0, found - modelled_ms)
    return f"{note}: attention alone would add {more:.1f} ms to a plain token at context {context}"
