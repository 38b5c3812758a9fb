"""A result of a batch for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RULE = "---"


def entry_text(values: Mapping[str, Any]) -> str:
    """An entry of `Batch`: how each text ended, and the text after its prompt."""
    where = f"{RULE} line {values['line']}"
    if "error" in values:
        return f"{where}, error: {values['error']}"
    prompt, outputs = values["prompt"] or "", values["outputs"]
    parts = []
    for output in outputs:
        which = f", output {output['index']}" if len(outputs) > 1 else ""
        tokens = len(output["token_ids"])
        ended = f"{tokens} new token{'s' * (tokens != 1)}, ended by {output['finish_reason']}"
        parts.append(f"{where}{which}: {ended}\n{prompt}{output['text']}".rstrip("\n"))
    return "\n".join(parts)
