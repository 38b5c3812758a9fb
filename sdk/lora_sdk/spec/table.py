"""The table that the tuner writes and decoding reads: the best tree by context.

A file holds tables of several drafts, boards and objectives for one model. By default it is
speculation.json in the model's folder. Tables from the same measurement share its trees.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.regular_file import names_no_file, read_regular
from lora_host.schema_match import surely_valid
from lora_sdk.opening.speculation_options import PROPOSERS, SpeculationOptions
from lora_sdk.spec.machine_name import this_machine
from lora_sdk.spec.table_schema import SCHEMA
from lora_sdk.spec.table_text import table_text
from lora_sdk.step.tree_shape import TreeShape

FILE_NAME = "speculation.json"
OBJECTIVES = ("modelled", "wall")
MAX_FILE_BYTES = 8 << 20


@dataclass(frozen=True)
class Choice:
    """From `context` positions on: the round with the highest effective performance and its
    speed-up over plain decoding. One row: speculation does not pay."""

    context: int
    rows: int
    aat: float
    plain_s: float
    verify_s: float
    draft_s: float
    speedup: float


@dataclass(frozen=True)
class CurveRecord:
    """AAT for contexts from `context` on: the fit A + B ln(x - C), its R2 on the `tested` sizes,
    which were not fitted, and which of the two is `used`, "fit" or "measurement". `aat`: measured
    values by size. `rounds`: number of rounds of plain decoding. `pooled`: measured over all
    contexts, since this range had too few rounds."""

    context: int
    a: float
    b: float
    c: float
    r2: float
    used: str
    fitted: tuple[int, ...]
    tested: int
    rounds: int
    pooled: bool
    aat: Mapping[int, float]


@dataclass(frozen=True)
class Measurement:
    """A draft's trees by size and their AAT, measured on the target's continuations of `prompts`
    held-out prompts from `text` at `temperature`."""

    proposer: str
    draft: str | None
    temperature: float
    text: str
    prompts: int
    trees: Mapping[int, TreeShape]
    curves: tuple[CurveRecord, ...]


@dataclass(frozen=True)
class SpeculationTable:
    """Choices by context for a model on `boards` boards with an `overlay` (or design).

    `objective` "modelled": times of the timing model. "wall": measured with these `kernels` on this
    `machine`. `folder`: folder of the file. The draft's path is relative to it."""

    model: str
    board: str
    boards: int
    overlay: str
    objective: str
    machine: str
    kernels: str
    measurement: Measurement
    choices: tuple[Choice, ...]
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        starts = [choice.context for choice in self.choices]
        if not starts or starts[0] != 1 or starts != sorted(set(starts)):
            raise RequestError(f"ranges of a table begin at {starts}; expected 1 and ascending")
        for choice in self.choices:
            self.tree(choice.rows)

    def choose(self, context: int) -> TreeShape:
        """The tree for a root that attends to `context` positions, including itself. One row if
        plain decoding is faster."""
        return self.tree(self.choice(context).rows)

    def choice(self, context: int) -> Choice:
        """The choice of the range that contains `context`. The first one below 1."""
        index = bisect_right([choice.context for choice in self.choices], context)
        return self.choices[max(index - 1, 0)]

    def tree(self, rows: int) -> TreeShape:
        """The best tree of `rows` rows at any context. RequestError: none was searched."""
        if rows == 1:
            return TreeShape()
        if rows not in self.measurement.trees:
            sizes = sorted(self.measurement.trees)
            raise RequestError(
                f"verification length {rows}; the table has trees of 1 to {sizes[-1]} rows"
            )
        return self.measurement.trees[rows]

    @property
    def pays(self) -> bool:
        """Whether any range speculates."""
        return any(choice.rows > 1 for choice in self.choices)

    @property
    def speedup(self) -> float:
        """Mean over the ranges, which are spaced by a constant factor."""
        return sum(choice.speedup for choice in self.choices) / len(self.choices)

    @property
    def draft(self) -> Path | None:
        """The draft's folder; None for look-up."""
        name = self.measurement.draft
        return None if name is None else Path(os.path.normpath(self.folder / name))

    def options(self, rows: int | None = None) -> SpeculationOptions:
        """Options for Engine: trees chosen by context, or always the tree of `rows` rows."""
        tree = self.choose if rows is None else self.tree(rows)
        return SpeculationOptions(self.measurement.proposer, self.draft, tree)

    @property
    def key(self) -> tuple[object, ...]:
        """A later table with the same key replaces this one."""
        of = self.measurement
        return (self.objective, self.machine, self.kernels, self.overlay, self.boards,
                of.proposer, of.draft, of.temperature)  # fmt: skip


def load_tables(path: Path) -> tuple[SpeculationTable, ...]:
    """The tables of a file. RequestError: it cannot be read or is not a file of tables."""
    try:
        text = read_regular(path, MAX_FILE_BYTES).decode("utf-8")
        value = json.loads(text, parse_constant=_no_number)
    except OSError as error:
        raise RequestError(
            f"{path}: {error.strerror or error}; expected a table", usage=names_no_file(error)
        ) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: not JSON: {error}", usage=False) from None
    _check(path, value)
    try:
        found = []
        for entry in value["measurements"]:
            measurement = _measurement(entry)
            for table in entry["tables"]:
                found.append(_table(value["model"], table, measurement, path.parent))
    except RequestError as error:
        raise RequestError(f"{path}: {error}", usage=False) from None
    return tuple(found)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _check(path: Path, value: object) -> None:
    if surely_valid(SCHEMA, value):
        return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(SCHEMA).iter_errors(value))
    if error is not None:
        where = "/".join(map(str, error.absolute_path)) or "top"
        raise RequestError(
            f"{path}: {where}: {error.message:.200}; run lora lab spec tune again", usage=False
        )


def _measurement(entry: Mapping[str, Any]) -> Measurement:
    trees = {int(size): TreeShape.from_json(tree) for size, tree in entry["trees"].items()}
    for size, tree in trees.items():
        if tree.size != size:
            raise RequestError(f"tree {size} has {tree.size} rows; expected {size}")
    curves = tuple(
        CurveRecord(**{**c, "fitted": tuple(c["fitted"]),
                       "aat": {int(size): aat for size, aat in c["aat"].items()}})
        for c in entry["curves"]
    )  # fmt: skip
    fields = {key: entry[key] for key in ("proposer", "draft", "temperature", "text", "prompts")}
    return Measurement(trees=trees, curves=curves, **fields)


def _table(
    model: str, entry: Mapping[str, Any], measurement: Measurement, folder: Path
) -> SpeculationTable:
    fields = {key: value for key, value in entry.items() if key != "choices"}
    choices = tuple(Choice(**choice) for choice in entry["choices"])
    return SpeculationTable(
        model=model, measurement=measurement, choices=choices, folder=folder, **fields
    )


def save_tables(path: Path, model: str, tables: Sequence[SpeculationTable]) -> None:
    """Write tables of one model, grouped by measurement as it is written. RequestError: the file
    cannot be written."""
    groups: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for table in tables:
        plain = _plain(table.measurement)
        own = next((entries for m, entries in groups if m == plain), None)
        if own is None:
            own = []
            groups.append((plain, own))
        values = {
            name: getattr(table, name)
            for name in ("board", "boards", "overlay", "objective", "machine", "kernels")
        }
        own.append({**values, "choices": [_rounded(asdict(c)) for c in table.choices]})
    value = {
        "version": 1,
        "model": model,
        "measurements": [{**m, "tables": entries} for m, entries in groups],
    }
    _check(path, json.loads(json.dumps(value)))
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(table_text(value) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}; name another with -o") from None


def put_tables(path: Path, model: str, tables: Iterable[SpeculationTable]) -> None:
    """Add tables to a file. They replace those of the same draft, boards and objective."""
    new = list(tables)
    keys = {table.key for table in new}
    old = load_tables(path) if path.exists() else ()
    save_tables(path, model, [*(t for t in old if t.key not in keys), *new])


def _plain(measurement: Measurement) -> dict[str, Any]:
    trees = {str(size): tree.to_json() for size, tree in sorted(measurement.trees.items())}
    curves = [
        {**_rounded(asdict(curve)), "aat": {str(s): round(v, 4) for s, v in curve.aat.items()}}
        for curve in measurement.curves
    ]
    of = measurement
    return {
        "proposer": of.proposer, "draft": of.draft, "temperature": of.temperature,
        "text": of.text, "prompts": of.prompts, "curves": curves, "trees": trees,
    }  # fmt: skip


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in values.items()
    }


def find_table(
    model: Path,
    overlay: str,
    boards: int,
    objective: str = "modelled",
    *,
    machine: str | None = None,
    proposer: str | None = None,
) -> SpeculationTable | None:
    """The table in the model's folder with the highest speed-up for this overlay and board count.

    `machine`: only tables measured there (ignored for modelled tables). None: tables of this
    machine are preferred. `proposer`: only this kind of draft. Returns None if there is no table.
    RequestError for a file that is not a table."""
    if objective not in OBJECTIVES or (proposer is not None and proposer not in PROPOSERS):
        raise RequestError(f"no tables of objective {objective!r}, proposer {proposer!r}")
    path = model / FILE_NAME
    if not path.exists():
        return None
    fitting = [
        table
        for table in load_tables(path)
        if (table.overlay, table.boards, table.objective) == (overlay, boards, objective)
        and (objective == "modelled" or machine is None or table.machine == machine)
        and (proposer is None or table.measurement.proposer == proposer)
        and (table.draft is None or table.draft.is_dir())
    ]
    here = this_machine()
    return max(fitting, key=lambda t: (t.machine in ("", here), t.speedup), default=None)
