"""What boards, hosts and electricity cost: `data/prices.yaml`, or a file that replaces parts of
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_host.yaml_file import read_yaml
from lora_lab.timing.facts import DATA

LARGEST = 1e9
SECONDS_PER_YEAR = 365 * 24 * 3600
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Prices:
    """Dollars of a host and of boards by kind, spread over `years`; watts of a host without its
    boards; `sources` says where each comes from."""

    years: float
    dollars_per_kwh: float
    host_dollars: float
    host_watts: float
    boards: Mapping[str, float]
    sources: Mapping[str, str]

    def per_second(self, board: str, boards: int, hosts: int, board_watts: float) -> float | None:
        """Dollars a second of `boards` boards in `hosts` hosts that draw their power all the time;
        None where the board's price is not known."""
        if board not in self.boards:
            return None
        bought = boards * self.boards[board] + hosts * self.host_dollars
        watts = boards * board_watts + hosts * self.host_watts
        spread = bought / (self.years * SECONDS_PER_YEAR)
        return spread + watts * self.dollars_per_kwh / _JOULES_PER_KWH

    def as_dict(self, board: str) -> dict[str, Any]:
        """The assumptions about clusters of one kind of board, for reports."""
        return {
            "years": self.years,
            "dollars_per_kwh": self.dollars_per_kwh,
            "host_dollars": self.host_dollars,
            "host_watts": self.host_watts,
            "board_dollars": self.boards.get(board),
            "sources": {name: self.sources[name] for name in ("host", board)
                        if name in self.sources},
        }  # fmt: skip


@cache
def prices(path: Path | None = None) -> Prices:
    """The assumed prices, with those of the file in their place. RequestError names a field."""
    merged = dict(read_yaml(DATA / "prices.yaml", RequestError))
    if path is not None:
        given = _checked(read_yaml(path, RequestError), path)
        for name, value in given.items():
            both = isinstance(value, Mapping)
            merged[name] = {**merged[name], **value} if both else value
    host, boards = merged["host"], merged["boards"]
    sources = {name: str(one.get("source", f"given in {path}")) for name, one in boards.items()}
    return Prices(
        years=merged["years"],
        dollars_per_kwh=merged["dollars_per_kwh"],
        host_dollars=host["dollars"],
        host_watts=host["watts"],
        boards={name: one["dollars"] for name, one in boards.items()},
        sources={**sources, "host": str(host.get("source", f"given in {path}"))},
    )


def _checked(given: Any, path: Path) -> dict[str, Any]:
    fields = _mapping(given, path, "it", ("years", "dollars_per_kwh", "host", "boards"))
    for name in ("years", "dollars_per_kwh"):
        if name in fields:
            _number(fields[name], path, name, above=name == "years")
    if "host" in fields:
        _entry(fields["host"], path, "host", ("dollars", "watts"))
    if "boards" in fields:
        for name, one in _mapping(fields["boards"], path, "boards").items():
            if "dollars" not in _entry(one, path, f"boards.{name}", ("dollars",)):
                raise _wrong(f"{path}: boards.{name} has no dollars; expected a number")
    return fields


def _entry(value: Any, path: Path, where: str, numbers: tuple[str, ...]) -> dict[str, Any]:
    found = _mapping(value, path, where, (*numbers, "source"))
    for name in numbers:
        if name in found:
            _number(found[name], path, f"{where}.{name}")
    return found


def _mapping(
    value: Any, path: Path, where: str, names: tuple[str, ...] | None = None
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(f"{path}: {where} is {value!r:.60}; expected a mapping")
    for name in value:
        if names is not None and name not in names:
            raise _wrong(
                f"{path}: field {name!r:.60} of {where} is not known; {did_you_mean(name, names)}"
            )
    return value


def _number(value: Any, path: Path, name: str, above: bool = False) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= value <= LARGEST or (above and value == 0):
        least = "above 0" if above else "of at least 0"
        raise _wrong(
            f"{path}: {name} is {value!r:.60}; expected a number {least}, {LARGEST:g} at most"
        )


def _wrong(message: str) -> RequestError:
    """The file's content is at fault, and not the option that names it."""
    return RequestError(message, usage=False)
