"""The report of `lora lab model`: times, rates, breakdown, bytes, utilization of each roof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Totals:
    """Sums over a run, the input of a report. Times are in seconds."""

    seconds: float = 0.0
    by: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    macs: float = 0.0

    def add(self, other: Totals, times: float = 1.0) -> None:
        """Add `other`, multiplied by `times`."""
        self.seconds += times * other.seconds
        self.macs += times * other.macs
        for mine, theirs in ((self.by, other.by), (self.bytes, other.bytes)):
            for key, value in theirs.items():
                mine[key] = mine.get(key, 0.0) + times * value


PART_TITLES = {
    "vfu": "vector unit",
    "kv": "stores of K and V",
    "link_exposed": "links",
    "scrub": "checksums of weights",
    "issue": "issue of loads",
}
"""Parts of a time whose name does not say what they are, for all texts and plots."""
DETAIL_TITLES = {
    "verification_length": "rows of the tree",
    "aat": "AAT, tokens a round",
    "aat_basis": "AAT is",
    "verify_ms": "verification ms",
    "plain_ms": "plain token ms",
    "speedup": "speed-up",
}
ROOF_TITLES = {
    "memory": "of the memory's peak",
    "compute": "of its multipliers",
    "link": "of its link ports",
}
EXPOSED = (
    "parts are exposed time, by which an operation ends after all before it: its start first, "
    "then its work in the vector unit, then what is left; what is hidden behind another part "
    "counts there"
)
SMALLEST_SHARE = 0.005


def part_title(part: str) -> str:
    """The name of a part of a time, for people."""
    return PART_TITLES.get(part, part.replace("_", " "))


def shares_text(by: Mapping[str, float], whole: float) -> str:
    """The parts of a time of `whole`, the largest first, those below half a percent left out."""
    parts = sorted(by.items(), key=lambda part: -part[1])
    return ", ".join(
        f"{part_title(name)} {value / whole:.0%}"
        for name, value in parts
        if value >= SMALLEST_SHARE * whole
    )


@dataclass(frozen=True)
class Roofs:
    """Peaks of one board: memory and link bytes per second, multiply-accumulates per second.
    `memory` is the vendor's peak, but of the hardware source its one port; `compute` is that of the
    design's own multipliers, all in use."""

    memory: float
    compute: float
    link: float


@dataclass(frozen=True)
class Report:
    """A modelled time. `latency_ms`: of one token at a context, or of a whole run with input and
    output lengths. `breakdown_ms` sums to it. `bytes`: moved by one board in that time.
    `utilisation`: the share of each roof."""

    label: str
    design: str
    board: str
    model: str
    boards: int
    mode: str
    latency_ms: float
    tokens_per_second: float
    breakdown_ms: dict[str, float]
    bytes: dict[str, float]
    utilisation: dict[str, float]
    details: dict[str, Any]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Values for JSON. `breakdown` is in milliseconds. Details are top-level keys."""
        values = asdict(self)
        values["breakdown"] = values.pop("breakdown_ms")
        values.update(values.pop("details"))
        values["notes"] = list(self.notes)
        return values


def utilisation(totals: Totals, roofs: Roofs) -> dict[str, float]:
    """The share of each roof that a run used."""
    if totals.seconds <= 0.0:
        return {}
    memory = sum(totals.bytes.get(kind, 0.0) for kind in ("weights", "kv", "adapter"))
    shares = {
        "memory": memory / totals.seconds / roofs.memory,
        "compute": totals.macs / totals.seconds / roofs.compute,
    }
    if roofs.link:
        shares["link"] = totals.bytes.get("link", 0.0) / totals.seconds / roofs.link
    return shares
