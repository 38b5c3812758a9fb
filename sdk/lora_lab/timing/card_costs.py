"""What the counts of unit_counts.py take on a card: data/sim-card.yaml, or a file of the same
form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_lab.timing.facts import DATA
from lora_lab.timing.matmul_counts import Arrays
from lora_lab.timing.vector_counts import Counts

FILE = DATA / "sim-card.yaml"
CONTROL = "control"  # the kind of what a step takes besides its commands


@dataclass(frozen=True)
class CardCosts:
    """Cycles by kind and count, each [cycles, reads]: cycles besides memory's latency, and how
    often that is waited for. `between`: from the end of a command to the start of one that waits
    for it. `tile`: of the INT8 array's kinds (matmul_counts.Arrays). `attentions`: attention units
    of a card with channels, `float_attentions` of which have lanes of FP16; others have one.
    `line_rate`: lines a cycle that a channel's bank gives, 1 in the simulations that these were
    measured in."""

    lanes: int
    rows: int
    fill: tuple[float, float]
    store: tuple[float, float]
    between: float
    tile: Mapping[str, tuple[float, float]]
    units: Mapping[str, Mapping[str, tuple[float, float]]]
    attentions: int
    float_attentions: int
    line_rate: float = 1.0

    def arrays(self, latency: float) -> Arrays:
        """The MPU's arrays."""
        fill, store = (pair[0] + pair[1] * latency for pair in (self.fill, self.store))
        tile = {kind: pair[0] + pair[1] * latency for kind, pair in self.tile.items()}
        return Arrays(self.lanes, self.rows, fill, store, tile)

    def cycles(self, kind: str, counts: Counts, latency: float) -> float:
        """Of a command of that kind where memory answers after `latency` cycles. RequestError: the
        kind was never measured."""
        costs = self.units.get(kind)
        if costs is None:
            raise RequestError(f"{kind!r} has no cycles; add it to {FILE.name}")
        found = 0.0
        for name, (cycles, reads) in costs.items():
            found += counts.get(name, 0.0) * (cycles + reads * latency)
        return found


@cache
def card_costs(file: Path = FILE) -> CardCosts:
    """Of a file."""
    data: Mapping[str, Any] = read_yaml(file, RequestError)
    units = {kind: _pairs(costs) for kind, costs in data["units"].items()}
    fill, store = (tuple(data[name]) for name in ("fill", "store"))
    return CardCosts(
        data["lanes"], data["rows"], fill, store, data["between"], _pairs(data["tile"]), units,
        data["attentions"], data["float_attentions"],
    )  # fmt: skip


def _pairs(costs: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    return {name: (float(pair[0]), float(pair[1])) for name, pair in costs.items()}
