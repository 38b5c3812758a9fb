"""The wide card as data, before its source: overlays/units/wide-*.yaml. Each constant says where it
comes from: simulated, planned or assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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
    found = _whole(name)
    where = f"{name}.yaml"
    constants = {key: _constant(where, key, entry) for key, entry in found["constants"].items()}
    odd = set(constants) ^ set(CONSTANTS)
    if odd:
        raise RequestError(
            f"{where}: constants {sorted(odd)}: expected each of {len(CONSTANTS)} once"
        )
    planned = {
        key: (int(entry[0]), dict(zip(CELLS, map(float, entry[1:]), strict=True)))
        for key, entry in found["planned"].items()
    }
    return WideCard(
        name, found["title"], found["board"], float(found["clock_hz"]), constants,
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
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise RequestError(f"{where}: {key} is {value!r:.60}, expected a number of at least 0")
    return Constant(float(value), source, str(what))
