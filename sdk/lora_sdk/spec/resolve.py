"""Resolves `--speculative auto|off|N` and a named draft to the engine's speculation options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.gguf.file import is_gguf
from lora_sdk.opening.speculation_options import PROPOSERS, SpeculationOptions
from lora_sdk.spec.table import SpeculationTable, find_table
from lora_sdk.step.tree_shape import MAX_NODES, TreeShape

AUTO, OFF = "auto", "off"
UNTUNED = 5  # rows of a chain without a table

_PROPOSERS_OF = {"eagle3": ("eagle3",), "draft": ("draft", "longspec")}  # by kind of folder


@dataclass(frozen=True)
class SpeculationRequest:
    """The user's options. `length`: "auto", "off" or rows per verification. `draft`: a folder or
    None. `proposer`: one of PROPOSERS or None. `objective`: "modelled", "wall" or None."""

    length: str
    draft: Path | None = None
    proposer: str | None = None
    objective: str | None = None

    @property
    def named(self) -> bool:
        """Whether the user named a draft."""
        return self.draft is not None or self.proposer is not None


@dataclass(frozen=True)
class Target:
    """The decoding model: its folder, its overlay's name, the number of boards, and whether they
    are emulated."""

    model: Path
    overlay: str
    boards: int
    emulated: bool


@dataclass(frozen=True)
class ResolvedSpeculation:
    """The options to open the engine with, None for no speculation. `table`: the table that chose
    the trees, if any. `note`: one line for the user."""

    options: SpeculationOptions | None
    table: SpeculationTable | None
    note: str

    def as_dict(self) -> dict[str, Any]:
        """The draft and the table's expected values, for JSON."""
        if self.options is None:
            return {"proposer": None, "note": self.note}
        draft = self.options.draft
        values: dict[str, Any] = {
            "proposer": self.options.proposer,
            "draft": None if draft is None else str(draft),
        }
        if self.table is not None:
            table = self.table
            values["table"] = {
                "objective": table.objective,
                "speedup": table.speedup,
                "best_lengths": [
                    {"context": c.context, "rows": c.rows, "speedup": c.speedup}
                    for c in table.choices
                ],
            }
        return values

    def lines(self) -> list[str]:
        """The draft and the table's best lengths, as text."""
        if self.table is None:
            return [self.note]
        table, best, last = self.table, [], 0
        for choice in table.choices:
            if choice.rows != last:
                best.append(f"{counted(choice.rows, 'row')} from context {choice.context}")
                last = choice.rows
        label = "modelled" if table.objective == "modelled" else "measured before"
        if not table.pays:
            proposer = table.measurement.proposer
            return [self.note, f"{label}: {proposer} is off, plain decoding is at least as fast"]
        return [
            self.note,
            f"{label}: {table.measurement.proposer} is {table.speedup:.2f} times as fast as plain "
            f"decoding, with verifications of {', '.join(best)} on",
        ]


def resolve(request: SpeculationRequest, target: Target) -> ResolvedSpeculation:
    """Find the draft and its trees.

    "auto" uses the model's table. Without a table it drafts nothing, except if a draft is named,
    which gets short chains. RequestError for an invalid length or draft."""
    rows = _rows(request.length)
    if request.length == OFF:
        if request.named:
            raise RequestError("--speculative off, but a draft is named; omit one of them")
        return ResolvedSpeculation(None, None, "speculation: off")
    if request.draft is not None and not request.draft.is_dir() and not is_gguf(request.draft):
        raise RequestError(f"draft {request.draft}: no such folder; expected a draft model or head")
    if request.draft is not None and request.proposer not in (
        None,
        *_PROPOSERS_OF[kind_of(request.draft)],
    ):
        expected = " or ".join(_PROPOSERS_OF[kind_of(request.draft)])
        raise RequestError(
            f"draft {request.draft} is not for --proposer {request.proposer}; expected {expected}"
        )
    table = _table(request, target)
    if table is not None and (rows is None or rows in (1, *table.measurement.trees)):
        return _from_table(table, rows)
    if rows is None and not request.named:
        return ResolvedSpeculation(
            None, None, "speculation: off, no table for this model on these boards"
        )
    if not request.named and table is None:
        raise RequestError(
            f"--speculative {request.length}: the model has no table that names a draft; name one "
            "with --draft, or --proposer lookup"
        )
    return _chain(request, table, rows)


def _rows(length: str) -> int | None:
    if length in (AUTO, OFF):
        return None
    if not length.isdecimal() or not 1 <= int(length) <= MAX_NODES:
        raise RequestError(
            f"--speculative {length}: expected {AUTO}, {OFF} or rows per verification, 1 to "
            f"{MAX_NODES}"
        )
    return int(length)


def _table(request: SpeculationRequest, target: Target) -> SpeculationTable | None:
    """The best table for these boards, and for the named draft, if any. For emulated boards a
    wall-clock table is preferred to a modelled one."""
    proposer = request.proposer or (None if request.draft is None else kind_of(request.draft))
    objectives = ("wall", "modelled") if target.emulated else ("modelled",)
    table = None
    for objective in (request.objective,) if request.objective else objectives:
        table = table or find_table(
            target.model, target.overlay, target.boards, objective, proposer=proposer
        )
    if table is None or request.draft is None:
        return table
    same = table.draft is not None and table.draft.resolve() == request.draft.resolve()
    return table if same else None


def _from_table(table: SpeculationTable, rows: int | None) -> ResolvedSpeculation:
    name = table.measurement.proposer if table.draft is None else table.draft.name
    if rows is not None:
        note = f"speculation: {name}, {rows} rows per verification"
        return ResolvedSpeculation(table.options(rows) if rows > 1 else None, table, note)
    if not table.pays:
        return ResolvedSpeculation(
            None, table, f"speculation: off, {name} does not pay ({table.objective})"
        )
    said = "modelled" if table.objective == "modelled" else "measured before"
    note = f"speculation: {name}, lengths by context, x{table.speedup:.2f} {said}"
    return ResolvedSpeculation(table.options(), table, note)


def _chain(
    request: SpeculationRequest, table: SpeculationTable | None, rows: int | None
) -> ResolvedSpeculation:
    rows = rows or UNTUNED
    if table is not None:
        proposer, draft = table.measurement.proposer, table.draft
    else:
        proposer, draft = request.proposer or kind_of(request.draft), request.draft
    if rows == 1:
        return ResolvedSpeculation(None, None, "speculation: off, one row is plain decoding")
    options = SpeculationOptions(proposer, draft, TreeShape.chain(rows))
    hint = "" if request.length != AUTO else "; lora lab spec tune finds the best"
    return ResolvedSpeculation(
        options, None, f"speculation: {proposer}, chains of {rows} rows{hint}"
    )


def kind_of(draft: Path | None) -> str:
    """The proposer for a draft's folder. A head is recognized by its config."""
    from lora_sdk.model.json_file import read_json

    if draft is None:
        raise RequestError(f"no draft is named; expected --draft, or --proposer {PROPOSERS[2]}")
    if is_gguf(draft):
        return "draft"
    config = read_json(draft / "config.json")
    head = "draft_vocab_size" in config or "eagle_aux_hidden_state_layer_ids" in config
    return "eagle3" if head else "draft"
