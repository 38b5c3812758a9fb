"""The table of faults for readers."""

from __future__ import annotations

from lora_sdk.torture.kinds import KINDS
from lora_sdk.torture.phases import PHASES

NAMED = {
    "board": "the board",
    "unit": "board and unit",
    "cable": "an end of a cable of the board",
    "place": "board, bank and tensors",
    "nothing": "-",
}


def table() -> str:
    """Markdown: a row a kind."""
    lines = ["| kind | group | found by | an error names | phases |", "|---|---|---|---|---|"]
    for kind in KINDS:
        phases = ", ".join(phase for phase in PHASES if phase in kind.phases)
        named = NAMED[kind.names]
        lines.append(f"| {kind.name} | {kind.group} | {kind.found_by} | {named} | {phases} |")
    return "\n".join(lines)
