"""What a design takes of its board by counts: modules of overlays/rtl times instances."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from lora_host.data import data_folder
from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_lab.timing.designs import Design, design_names, load_design
from lora_lab.timing.facts import DATA, BoardFacts, board_facts
from lora_lab.timing.wide_card import WideCard, wide_card, wide_names

RESOURCES = ("lut", "ff", "dsp", "bram", "uram")
WIDTHS = {"lut": 10, "ff": 10, "dsp": 7, "bram": 8, "uram": 6}
"""Columns of each in the table, which fits 80."""
LINE_BYTES, URAM_WORDS, URAM_BYTES_WIDE = 64, 4096, 8
"""An UltraRAM has 4,096 words of 72 bits, of which a line takes 64 bits."""

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Part:
    """`instances` of a module or unit, or of a memory; `each`: counts of one, by resource."""

    name: str
    instances: int
    each: Counts

    def total(self, resource: str) -> float:
        """Of all instances."""
        return self.instances * self.each[resource]


@dataclass(frozen=True)
class Fit:
    """A design's parts on a board. `most`: the share of each resource that it may take.
    `not_counted`: what is missing from the sums."""

    design: str
    board: BoardFacts
    parts: tuple[Part, ...]
    most: float
    counted_for_board: bool
    not_counted: tuple[str, ...]

    @property
    def label(self) -> str:
        """Of a wide card, some of whose parts are estimates, "planned"."""
        return "planned" if self.design in wide_names() else "counted"

    def total(self, resource: str) -> float:
        """Of all parts, in LUTs (those that are memory too), registers, DSPs, blocks of 36 Kbit or
        UltraRAMs."""
        return sum(part.total(resource) for part in self.parts)

    def shares(self) -> dict[str, float] | None:
        """Share of the board by resource. None for a board whose cells are not counted."""
        if not self.counted_for_board:
            return None
        return {name: self.total(name) / getattr(self.board, name) for name in RESOURCES}

    def excess(self) -> dict[str, float]:
        """Resources over `most`, by which share of the board. Empty if the design fits."""
        shares = self.shares() or {}
        return {name: share - self.most for name, share in shares.items() if share >= self.most}

    def verdict(self) -> str | None:
        """Whether it fits, in words of a report. None for a board whose cells are not counted."""
        shares = self.shares()
        if shares is None:
            return None
        most = max(shares, key=lambda name: shares[name])
        fits = "does not fit" if self.excess() else "fits"
        return (
            f"{fits} the {self.board.title}, {shares[most]:.1%} of {most.upper()} where "
            f"{self.most:.0%} is the most"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.label,
            "design": self.design,
            "board": self.board.name,
            "parts": [
                {"name": part.name, "instances": part.instances,
                 **{name: part.total(name) for name in RESOURCES}}
                for part in self.parts
            ],
            "total": {name: self.total(name) for name in RESOURCES},
            "share": self.shares(),
            "most": self.most,
            "excess": self.excess(),
            "not_counted": list(self.not_counted),
        }  # fmt: skip


@cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_yaml(DATA / "fit.yaml", RequestError)
    return found


@cache
def counts() -> Mapping[str, Counts]:
    """Counts of each module and unit of overlays/rtl/budget.yaml, by resource."""
    path = data_folder("overlays") / "rtl" / "budget.yaml"
    budget = read_yaml(path, RequestError)
    return {name: _resources(one) for name, one in (budget["modules"] | budget["units"]).items()}


def _resources(found: Mapping[str, float]) -> Counts:
    return {
        "lut": found["lut"] + found.get("lutram", 0),
        "ff": found["ff"],
        "dsp": found.get("dsp", 0),
        "bram": found.get("ramb36", 0) + found.get("ramb18", 0) / 2,
        "uram": found.get("uram", 0),
    }


def memory_uram(size: int) -> int:
    """UltraRAMs of a memory of `size` bytes in lines of 64 bytes."""
    lines = math.ceil(size / LINE_BYTES)
    return math.ceil(lines / URAM_WORDS) * (LINE_BYTES // URAM_BYTES_WIDE)


def fit_names() -> tuple[str, ...]:
    """Designs that have counts, the hardware source among them, and wide cards, whose parts are
    planned or counted."""
    counted = (name for name, one in _data()["designs"].items() if not one.get("abstract"))
    return (*counted, *(name for name in wide_names() if wide_card(name).planned))


def _merged(name: str) -> dict[str, Any]:
    one = _data()["designs"][name]
    below = _merged(one["base"]) if "base" in one else {"parts": {}, "memory": {}}
    return {
        "board": one.get("board", below.get("board")),
        "parts": {**below["parts"], **one.get("parts", {})},
        "memory": {**below["memory"], **one.get("memory", {})},
        "not_counted": one.get("not_counted", _data()["not_counted"]),
    }


def fit(name: str) -> Fit:
    """What the design `name` takes. RequestError: there are no counts of it."""
    if name not in fit_names():
        raise RequestError(
            f"design {name!r} has no counts (docs/rtl.md); expected {', '.join(fit_names())}"
        )
    if name in wide_names():
        return _wide(wide_card(name))
    found = _merged(name)
    board = board_facts(found["board"])
    shell = _data()["shell"].get(board.name)
    parts = [Part(part, n, counts()[part]) for part, n in found["parts"].items() if n]
    none = dict.fromkeys(RESOURCES, 0.0)
    parts += [
        Part(f"{title}, {size >> 20} MiB", 1, {**none, "uram": float(memory_uram(size))})
        for title, size in found["memory"].items()
    ]
    if shell is not None:
        parts.insert(0, Part("shell, static region", 1, shell))
    return Fit(
        design=name,
        board=board,
        parts=tuple(parts),
        most=_data()["most"],
        counted_for_board=shell is not None,
        not_counted=tuple(found["not_counted"]),
    )


def _wide(card: WideCard) -> Fit:
    """What a wide card takes, by counts of units that exist and estimates of those that do not."""
    shell = _data()["shell"][card.board]
    parts = [Part("shell, static region", 1, shell)]
    parts += [Part(part, number, counts()[part]) for part, number in card.counted.items()]
    parts += [Part(f"planned: {part}", n, each) for part, (n, each) in card.planned.items()]
    missing = "the memory's switch, link cores, the control's ROM, registers between regions"
    return Fit(card.name, board_facts(card.board), tuple(parts), _data()["most"], True, (missing,))


@dataclass(frozen=True)
class Basis:
    """The counted design `name` that stands for a design, and the fields in which a file's design
    differs from it: empty for the counted design itself."""

    name: str
    changed: tuple[str, ...]


def basis(design: Design) -> Basis | None:
    """By whose counts a design is judged: its own, or those of the shipped one that its file builds
    on. None: there are none."""
    name = design.base or design.name
    if name not in fit_names() or name not in design_names():
        return None
    shipped = load_design(name)
    if type(shipped) is not type(design):
        return None
    changed = tuple(
        one.name
        for one in fields(design)
        if one.name not in ("name", "title", "base")
        and getattr(design, one.name) != getattr(shipped, one.name)
    )
    return Basis(name, changed) if design.base or not changed else None


def unbuilt_note(design: Design) -> str:
    """What reports say of a design of our own."""
    note = "no hardware of this design exists: its time and resources are modelled only"
    found = basis(design)
    counted = None if found is None else fit(found.name).verdict()
    if found is None or counted is None:
        return note
    whose = f"its base {found.name} " if design.base else "it "
    changed = f"; changed and not counted: {', '.join(found.changed)}" if found.changed else ""
    return (
        "no hardware of this design exists: its time is modelled; by what is counted "
        f"{whose}{counted} (lora lab model --resources){changed}"
    )


def fit_lines(found: Fit) -> list[str]:
    """The table of a design as text."""
    head = f"{'':<31}{'count':>7}" + "".join(
        f"{name.upper():>{WIDTHS[name]}}" for name in RESOURCES
    )
    lines = [f"{found.label}: {found.design} on {found.board.title}", head]
    for part in found.parts:
        lines += _row(part.name, part.instances, {n: _number(part.total(n)) for n in RESOURCES})
    lines += _row("sum", None, {name: _number(found.total(name)) for name in RESOURCES})
    shares = found.shares()
    if shares is None:
        lines.append("  note: cells of UltraScale+; no share of this device is told")
    else:
        lines += _row("share of the device", None, {n: f"{shares[n]:.1%}" for n in RESOURCES})
        over = ", ".join(f"{name.upper()} by {share:.1%}" for name, share in found.excess().items())
        verdict = f"does not fit: over by {over}" if over else "fits, by what is counted"
        lines.append(f"  below {found.most:.0%} of each: {verdict}")
    lines.extend(f"  not counted: {what}" for what in found.not_counted)
    return lines


def _row(name: str, count: int | None, cells: Mapping[str, str]) -> list[str]:
    """A name that is too long has lines of its own."""
    *above, last = textwrap.wrap(name, 28, subsequent_indent="  ", break_on_hyphens=False)
    shown = "" if count is None else str(count)
    values = "".join(f"{cells[name]:>{WIDTHS[name]}}" for name in RESOURCES)
    return [*(f"  {line}" for line in above), f"  {last:<29}{shown:>7}{values}"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
