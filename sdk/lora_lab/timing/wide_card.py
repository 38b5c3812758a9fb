"""The wide card as data, before its source: overlays/units/wide-*.yaml. Each constant says where it
comes from: simulated, planned or assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lora_host.data import data_folder
from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml

FROM = ("simulated", "planned", "assumed")
CONSTANTS = (
    "channels", "line_rate", "latency", "fifo_lines", "rows", "rows_held", "part_cycles", "tile",
    "command", "broadcast", "finishers", "sum_cycles", "segments_at_once", "norm_rest",
    "pipe_columns", "pipe_latency", "activate_columns", "activate_latency", "store_lines",
    "store_accesses", "dynamic", "hop", "gather", "gather_overlap", "link_lines",
)  # fmt: skip
POSITIVE = (
    "channels", "line_rate", "rows", "rows_held", "part_cycles", "finishers", "segments_at_once",
    "pipe_columns", "activate_columns", "store_lines", "link_lines", "sum_cycles",
)  # fmt: skip
WHOLE = ("channels", "rows", "rows_held", "finishers", "segments_at_once", "dynamic")
LARGEST = 1e9
OWN_FIELDS = {"title", "base", "clock_hz", "constants"}  # of a file that builds on a card
FIELDS = {"title", "base", "board", "clock_hz", "constants", "counted", "planned"}
CELLS = ("lut", "ff", "dsp", "bram", "uram")


@dataclass(frozen=True)
class Constant:
    """`source`: one of FROM. `what`: it is, or where it was taken from."""

    value: float
    source: str
    what: str


@dataclass(frozen=True)
class WideCard:
    """`counted`: instances of modules of budget.yaml; `planned`: instances and cells of one, by
    CELLS, of parts without source."""

    name: str
    title: str
    board: str
    clock_hz: float
    constants: Mapping[str, Constant]
    counted: Mapping[str, int]
    planned: Mapping[str, tuple[int, Mapping[str, float]]]

    def __getattr__(self, name: str) -> float:
        """The value of a constant."""
        constants = self.__dict__.get("constants", {})
        if name not in constants:
            raise AttributeError(name)
        return float(constants[name].value)


@cache
def wide_names() -> tuple[str, ...]:
    """Names of the files in overlays/units, sorted."""
    return tuple(sorted(path.stem for path in (data_folder("overlays") / "units").glob("*.yaml")))


@cache
def wide_card(name: str) -> WideCard:
    """RequestError names the field that is unknown, missing or wrong."""
    return _card(name, _whole(name), f"{name}.yaml")


def wide_file(path: Path) -> WideCard | None:
    """The card of a file with one name and its fields, whose `base` is a card of the package; None
    if it is none. A constant may be a number alone. RequestError as `wide_card`."""
    content = read_yaml(path, RequestError)
    if not isinstance(content, dict) or len(content) != 1:
        return None
    ((name, fields),) = content.items()
    if not isinstance(fields, dict) or fields.get("base") not in wide_names():
        return None
    odd = sorted(map(str, set(fields) - OWN_FIELDS))
    constants = fields.get("constants", {})
    if odd or not isinstance(constants, dict):
        raise RequestError(
            f"{path}: {f'unknown field {odd[0]!r}' if odd else 'constants are no fields'}; a file "
            f"on {fields['base']} has title, clock_hz and constants (docs/wide_card.md)"
        )
    own = {
        key: value if isinstance(value, list) else [value, "assumed", f"{path.name}"]
        for key, value in constants.items()
    }
    below = _whole(fields["base"])
    whole = {**below, **fields, "constants": {**below["constants"], **own}}
    return _card(str(name), whole, str(path))


def _card(name: str, found: Mapping[str, Any], where: str) -> WideCard:
    clock = found["clock_hz"]
    if not isinstance(clock, int | float) or isinstance(clock, bool) or not 0 < clock <= 1e12:
        raise RequestError(
            f"{where}: clock_hz is {clock!r:.60}, expected a number above 0, 1e12 at most"
        )
    constants = {key: _constant(where, key, entry) for key, entry in found["constants"].items()}
    odd = set(constants) ^ set(CONSTANTS)
    if odd:
        raise RequestError(
            f"{where}: constants {sorted(odd)}: expected each of {len(CONSTANTS)} once: "
            f"{', '.join(CONSTANTS)}"
        )
    planned = {
        key: (int(entry[0]), dict(zip(CELLS, map(float, entry[1:]), strict=True)))
        for key, entry in found["planned"].items()
    }
    return WideCard(
        name, str(found["title"]), found["board"], float(clock), constants,
        found["counted"], planned,
    )  # fmt: skip


def _whole(name: str) -> dict[str, Any]:
    """A file's fields over those of its base."""
    found: dict[str, Any] = read_yaml(
        data_folder("overlays") / "units" / f"{name}.yaml", RequestError
    )
    odd = set(found) - FIELDS
    if odd:
        raise RequestError(f"{name}.yaml: fields {sorted(odd)} are not known")
    base = found.pop("base", None)
    if base is None:
        return found
    below = _whole(base)
    return {**below, **found, "constants": {**below["constants"], **found["constants"]}}


def _constant(where: str, key: str, entry: object) -> Constant:
    if not (isinstance(entry, list) and len(entry) == 3 and entry[1] in FROM):
        raise RequestError(
            f"{where}: {key} is {entry!r:.60}, expected [value, {'|'.join(FROM)}, what]"
        )
    value, source, what = entry
    low = "above 0" if key in POSITIVE else "of at least 0"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LARGEST or (value == 0 and key in POSITIVE):
        raise RequestError(
            f"{where}: {key} is {value!r:.60}, expected a number {low}, {LARGEST:g} at most"
        )
    if key in WHOLE and value != int(value):
        raise RequestError(f"{where}: {key} is {value!r:.60}, expected a whole number")
    return Constant(float(value), source, str(what))
