"""JSON schema of the file that table.py reads and writes."""

from __future__ import annotations

from typing import Any

_COUNT = {"type": "integer", "minimum": 1, "maximum": 1 << 30}
_SIZE = {"type": "integer", "minimum": 1, "maximum": 256}
_NUMBER = {"type": "number"}
_SECONDS = {"type": "number", "minimum": 0, "maximum": 1e6}
_TEXT = {"type": "string", "maxLength": 400}
_RANKS = {"type": "array", "maxItems": 256, "items": {"type": "integer", "minimum": -1}}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], min_items: int = 1) -> dict[str, Any]:
    return {"type": "array", "minItems": min_items, "maxItems": 1024, "items": items}


def _by_size(values: dict[str, Any]) -> dict[str, Any]:
    """An object whose keys are sizes of trees."""
    return {
        "type": "object",
        "patternProperties": {"^[1-9][0-9]{0,2}$": values},
        "additionalProperties": False,
        "minProperties": 1,
    }


_CHOICE = _object(
    context=_COUNT, rows=_SIZE, aat=_NUMBER, plain_s=_SECONDS, verify_s=_SECONDS,
    draft_s=_SECONDS, speedup={"type": "number", "minimum": 0, "maximum": 256},
)  # fmt: skip

_CURVE = _object(
    context=_COUNT, a=_NUMBER, b=_NUMBER, c=_NUMBER, r2=_NUMBER,
    used={"enum": ["fit", "measurement"]}, fitted=_list(_SIZE, 3), tested=_COUNT,
    rounds={"type": "integer", "minimum": 0}, pooled={"type": "boolean"}, aat=_by_size(_NUMBER),
)  # fmt: skip

_TABLE = _object(
    board=_TEXT, boards=_COUNT, overlay=_TEXT, objective={"enum": ["modelled", "wall"]},
    machine=_TEXT, kernels=_TEXT, choices=_list(_CHOICE),
)  # fmt: skip

_MEASUREMENT = _object(
    proposer={"enum": ["draft", "eagle3", "lookup", "longspec"]},
    draft={"type": ["string", "null"], "maxLength": 400},
    temperature={"type": "number", "minimum": 0},
    text=_TEXT,
    prompts=_COUNT,
    curves=_list(_CURVE),
    trees=_by_size(_object(parents=_RANKS, ranks=_RANKS)),
    tables=_list(_TABLE),
)

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object(version={"const": 1}, model=_TEXT, measurements=_list(_MEASUREMENT)),
}
"""Draft 2020-12."""
