"""Boards, fitted parameters and draft models of the timing model, from `data/`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_host.yaml_file import read_yaml

DATA = Path(__file__).resolve().parent / "data"
MAX_PARAMETERS = 12


@dataclass(frozen=True)
class Parameter:
    """One fitted number, with its meaning and the published row it was fitted to."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str


@dataclass(frozen=True)
class BoardFacts:
    """Facts of a board for timing and resources. Bandwidths are bytes per second of all banks.
    `bram` counts blocks of 36 Kbit. `macs_per_dsp` is for INT8. `runtime`: of host.yaml."""

    name: str
    title: str
    memory: str
    bytes_per_second: float
    capacity_bytes: int
    ddr_bytes_per_second: float
    ddr_capacity_bytes: int
    max_clock_hz: float
    dsp: int
    bram: int
    uram: int
    lut: int
    ff: int
    macs_per_dsp: int
    power_watts: float
    runtime: str


@dataclass(frozen=True)
class Draft:
    """A draft model: mean emitted tokens of a verification of `x` rows, and drafting time.
    `published`: the fewest and the most rows for which the curve was read from printed figures."""

    name: str
    title: str
    b: tuple[tuple[int, float], ...]
    published: tuple[int, int]
    draft_base: float
    draft_slope: float

    def aat(self, x: int, context: int) -> float:
        """Mean emitted tokens of a verification of x rows (root included) at a context, never above
        x: equation 3 of the tree-speculation paper with C = 1/2. Below the published rows a chain,
        each of whose tokens is accepted with the probability that gives the shortest published
        tree its value."""
        fewest = self.published[0]
        if x >= fewest:
            return min(float(x), self._read(x, context))
        p = _chain_probability(fewest, self._read(fewest, context))
        return sum(p**depth for depth in range(x))

    def basis(self, x: int) -> str:
        """Where AAT of x rows comes from."""
        fewest, most = self.published
        if x == 1:
            return "plain decoding"
        if x < fewest:
            return (
                f"interpolated: a chain between 1 row and {fewest}, the fewest that were published"
            )
        if x <= most:
            return f"read from figures published for {fewest} to {most} rows"
        return f"extrapolated: figures were published for {most} rows at most"

    def _read(self, x: int, context: int) -> float:
        (low, b_low), (high, b_high) = self.b[0], self.b[-1]
        fraction = math.log2(min(max(context, low), high) / low) / math.log2(high / low)
        b = b_low + (b_high - b_low) * fraction
        return 1.0 + b * (math.log(2.0) + math.log(x - 0.5))

    def draft_share(self, x: int) -> float:
        """Time of drafting x - 1 tokens, relative to a plain step; 0 for x = 1."""
        return self.draft_base + self.draft_slope * x if x > 1 else 0.0


@cache
def _chain_probability(rows: int, tokens: float) -> float:
    """p of a chain of `rows` rows whose 1 + p + p^2 + ... are `tokens`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        fewer = sum(middle**depth for depth in range(rows)) < tokens
        low, high = (middle, high) if fewer else (low, middle)
    return low


def _data(name: str) -> Any:
    return read_yaml(DATA / name, RequestError)


@cache
def parameters() -> Mapping[str, Parameter]:
    """The fitted parameters by name."""
    found = {entry["name"]: Parameter(**entry) for entry in _data("parameters.yaml")}
    if len(found) > MAX_PARAMETERS:
        raise AssertionError(f"{len(found)} fitted parameters, at most {MAX_PARAMETERS}")
    return found


@cache
def _boards() -> Mapping[str, BoardFacts]:
    return {name: BoardFacts(name=name, **facts) for name, facts in _data("boards.yaml").items()}


def board_names() -> tuple[str, ...]:
    """Names of known boards."""
    return tuple(_boards())


def board_facts(name: str) -> BoardFacts:
    """The board named `name`. RequestError, with the closest name, if there is none."""
    if name not in _boards():
        raise RequestError(f"board {name!r} is not known; {did_you_mean(name, board_names())}")
    return _boards()[name]


@cache
def drafts() -> Mapping[str, Draft]:
    """Draft models by name."""
    return {
        name: Draft(
            name=name,
            title=entry["title"],
            b=tuple((int(context), float(b)) for context, b in entry["b"]),
            published=(int(entry["published"][0]), int(entry["published"][1])),
            draft_base=float(entry["draft_base"]),
            draft_slope=float(entry["draft_slope"]),
        )
        for name, entry in _data("speculation.yaml").items()
    }


def resolved(value: object) -> object:
    """`value`, or if it names a fitted parameter, the value of that parameter."""
    if isinstance(value, str) and value in parameters():
        return parameters()[value].value
    return value


def only_known(kind: type, values: Mapping[str, object], where: str) -> None:
    """RequestError names the first key of `values` that is not a field of the dataclass `kind`."""
    known = [field.name for field in fields(kind)]
    for name in values:
        if name not in known:
            raise RequestError(
                f"{where}: unknown field {name!r}; {did_you_mean(str(name), known)} All fields: "
                "docs/timing.md, A design of your own"
            )
