"""Speculation tables as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lora_sdk.spec.table import CurveRecord, Measurement, SpeculationTable

SHOWN_SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def as_dict(table: SpeculationTable) -> dict[str, Any]:
    """A table for JSON, without its trees."""
    of = table.measurement
    return {
        "label": "modelled" if table.objective == "modelled" else "measured",
        "model": table.model,
        "proposer": of.proposer,
        "draft": None if table.draft is None else str(table.draft),
        "board": table.board,
        "boards": table.boards,
        "overlay": table.overlay,
        "objective": table.objective,
        "machine": table.machine,
        "kernels": table.kernels,
        "temperature": of.temperature,
        "text": of.text,
        "prompts": of.prompts,
        "pays": table.pays,
        "speedup": table.speedup,
        "curves": [asdict(curve) for curve in of.curves],
        "choices": [asdict(choice) for choice in table.choices],
    }


def reports(tables: Sequence[SpeculationTable]) -> str:
    """Tables as text, after a summary. A measurement that several tables share is shown once."""
    shown: list[Measurement] = []
    found = [summary(tables)]
    for table in tables:
        found.append(report(table, table.measurement not in shown))
        shown.append(table.measurement)
    return "\n\n".join(found)


def summary(tables: Sequence[SpeculationTable]) -> str:
    """A line per table: what its choices gain, and where plain decoding is used."""
    lines = [f"{'draft':<18} {'boards':<9} {'objective':<9}  gain"]
    for table in sorted(tables, key=lambda one: (one.objective, _name(one), one.board, one.boards)):
        boards = f"{table.boards} x {table.board}"
        lines.append(f"{_name(table):<18} {boards:<9} {table.objective:<9}  {_gain(table)}")
    return "\n".join(lines)


def _gain(table: SpeculationTable) -> str:
    if not table.pays:
        return "none: auto decodes plainly"
    gains = [choice.speedup for choice in table.choices if choice.rows > 1]
    span = f"{max(gains):.2f}" if len(gains) == 1 else f"{min(gains):.2f} to {max(gains):.2f}"
    plain = len(table.choices) - len(gains)
    return f"{span} times" + (f", none at {plain} of {len(table.choices)} contexts" * (plain > 0))


def _name(table: SpeculationTable) -> str:
    proposer = table.measurement.proposer
    return proposer if table.draft is None else f"{proposer} {table.draft.name}"


def report(table: SpeculationTable, measured: bool = True) -> str:
    """A table as text. `measured`: with AAT and its fit."""
    of = table.measurement
    name = _name(table)
    boards = f"{table.boards} x {table.board}, {table.overlay}"
    if table.objective == "modelled":
        head = f"modelled: {table.model} with {name} on {boards}"
    else:
        head = f"measured: {table.model} with {name} on emulated {boards}, {table.kernels} kernels"
        head += f"; {table.machine}"
    lines = [head]
    if measured:
        how = _how(of.temperature)
        lines.append(f"  AAT over {of.prompts} held-out prompts of {of.text}, {how}")
        lines += [f"  {_curve(curve)}" for curve in of.curves]
    lines.append("  from context  rows   AAT  verify ms  draft ms  plain ms  speed-up")
    for choice in table.choices:
        verify, draft, plain = (1e3 * s for s in (choice.verify_s, choice.draft_s, choice.plain_s))
        lines.append(
            f"  {choice.context:12} {choice.rows:5} {choice.aat:5.2f} {verify:10.3f} {draft:9.3f} "
            f"{plain:9.3f} {choice.speedup:9.2f}"
        )
    if not table.pays:
        lines.append("  speculation does not pay: plain decoding is at least as fast")
    return "\n".join(lines)


def _how(temperature: float) -> str:
    return "greedy" if temperature == 0 else f"temperature {temperature:g}"


def _curve(curve: CurveRecord) -> str:
    values = ", ".join(f"{s}: {curve.aat[s]:.2f}" for s in SHOWN_SIZES if s in curve.aat)
    fit = f"{curve.a:.3f} + {curve.b:.3f} ln(x - {curve.c:.3f})".replace("- -", "+ ")
    where = "all contexts" if curve.pooled else f"contexts from {curve.context} on"
    if curve.pooled and curve.context > 1:
        where = f"contexts from {curve.context} on, as measured over all"
    used = (
        "the fit is used"
        if curve.used == "fit"
        else "below 0.98: the measurement is used, interpolated"
    )
    return (
        f"{where}: {values}\n    fitted to {', '.join(map(str, curve.fitted))}: {fit}; R2 "
        f"{curve.r2:.3f} on {curve.tested} other sizes, {used}"
    )
