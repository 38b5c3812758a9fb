"""The table of faults for readers."""

from __future__ import annotations

from typing import Any

from lora_lab.torture.host import kinds as host_kinds
from lora_lab.torture.kinds import KINDS
from lora_lab.torture.phases import PHASES

NAMED = {
    "board": "the board",
    "unit": "board and unit",
    "cable": "an end of a cable of the board",
    "place": "board, bank and tensors",
    "bank": "board and bank",
    "nothing": "-",
}


def rows() -> list[dict[str, Any]]:
    """An object a kind, for JSON."""
    return [
        {
            "kind": kind.name,
            "group": kind.group,
            "found_by": kind.found_by,
            "names": NAMED[kind.names],
            "phases": [phase for phase in PHASES if phase in kind.phases],
        }
        for kind in KINDS
    ]


def host_table() -> str:
    """Markdown: a row a kind of the faults of processes."""
    lines = ["| kind | targets | found by | ends with | phases |", "|---|---|---|---|---|"]
    for kind in host_kinds.KINDS:
        cells = (
            kind.name, ", ".join(kind.targets), kind.found_by, _ends(kind), ", ".join(kind.phases),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ends(kind: host_kinds.Kind) -> str:
    return f"{kind.ends}; {kind.opening} in open and load" if kind.opening else kind.ends


def table() -> str:
    """Markdown: a row a kind."""
    lines = ["| kind | group | found by | an error names | phases |", "|---|---|---|---|---|"]
    for row in rows():
        cells = [*list(row.values())[:-1], ", ".join(row["phases"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
