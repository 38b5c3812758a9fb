"""The form of `/status`, for those who read it: it may come from any server."""

from __future__ import annotations

from typing import Any

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string", "maxLength": 1000}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def _list(items: Any, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


_SECONDS = {"type": "number", "minimum": 0}
_FLAG = {"type": "boolean"}
_LINK = _object(
    port=_COUNT, up=_FLAG, frames=_COUNT, errors=_COUNT, peer=_object(rank=_COUNT, port=_COUNT)
)
_BOARD = _object(
    rank=_COUNT,
    address=_TEXT,
    name=_TEXT,
    serial=_COUNT,
    type={"enum": ["emulated", "simulated", "real"]},
    banks=_list(_object(bank=_TEXT, used=_COUNT, usable=_COUNT), 256),
    links=_list(_LINK, 16),
    memory_errors=_object(corrected=_COUNT, uncorrected=_COUNT),
)
_TIMES = {
    "anyOf": [{"type": "null"}, _object(count=_COUNT, p50=_SECONDS, p99=_SECONDS)],
}
_COUNTED = _object(
    kv=_object(pages=_COUNT, held=_COUNT, cached=_COUNT, free=_COUNT),
    steps=_COUNT,
    redone_steps=_COUNT,
    speculation=_object(verifications=_COUNT, drafted=_COUNT, accepted=_COUNT),
    latency=_object(seconds=_SECONDS, first_token=_TIMES, between_tokens=_TIMES),
    history=_list(
        _object(seconds=_SECONDS, new_tokens=_COUNT, first_token=_TIMES, between_tokens=_TIMES),
        1000,
    ),
)
_STATUS = _object(
    version=_TEXT,
    model=_TEXT,
    chat=_FLAG,
    context=_COUNT,
    adapters=_list(_TEXT, 10_000),
    status=_TEXT,
    loaded_bytes=_COUNT,
    total_bytes=_COUNT,
    uptime=_SECONDS,
    requests=_object(running=_COUNT, waiting=_COUNT, capacity=_COUNT, max_waiting=_COUNT),
    new_tokens=_COUNT,
    boards=_list(_BOARD, 64),
)
SCHEMA = {"allOf": [_STATUS, {"anyOf": [_object(kv={"type": "null"}), _COUNTED]}]}
"""A JSON schema. `kv` is None, and the counts of the boards are absent, until they were read."""
