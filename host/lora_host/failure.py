"""Converts failures of the C library to Python exceptions."""

from __future__ import annotations

from functools import cache
from typing import Any

from . import native
from .errors import (
    NO_UNIT,
    CommandError,
    FailureFields,
    HangError,
    LinkError,
    LoraError,
    ModelError,
    OverlayError,
    PlacementError,
    RequestError,
    TransportError,
)

_CLASSES: dict[type[LoraError], tuple[str, ...]] = {
    OverlayError: ("ABI", "OVERLAY", "IDENTITY"),
    CommandError: (
        "SIZE",
        "CRC",
        "OPCODE",
        "ADDRESS",
        "COUNTER",
        "LIST",
        "STEP",
        "ROW",
        "KV",
        "OPERATION",
        "UNIT",
    ),
    HangError: ("WATCHDOG", "TIMEOUT"),
    LinkError: (
        "LINK_DOWN",
        "LINK_CRC",
        "LINK_POISON",
        "GATHERED",
        "LINK_STATUS",
        "LINK_CONFIG",
        "LINK_PAYLOAD",
        "LINK_CABLING",
    ),
    TransportError: ("MEMORY", "TRANSPORT", "COMPLETION", "CANCELLED", "ECC"),
    PlacementError: ("BANK_FULL", "RANGE"),
    RequestError: ("ARGUMENT", "URI"),
    ModelError: ("NAN",),
}

_UNSIGNED = ("index", "opcode", "unit", "counter", "row")
_SIGNED = ("board", "bank", "port", "peer_board", "peer_port")
_PLAIN = ("found", "expected", "offset", "requested", "available", "capacity")
_NONE = 0xFFFFFFFF
_UNITS = ("CONTROL", "MPU", "VFU", "ROUTER", "DMA")  # enum lora_unit


@cache
def error_classes() -> dict[int, type[LoraError]]:
    """The class of each status code except LORA_OK."""
    library = native.lib()
    return {
        int(getattr(library, f"LORA_ERR_{name}")): kind
        for kind, names in _CLASSES.items()
        for name in names
    }


def failure_fields(failure: Any) -> FailureFields:
    """FailureFields of a `struct lora_failure *`."""
    name = native.ffi().string(native.lib().lora_status_name(failure.code)).decode()
    values: dict[str, int | None] = {}
    for field in _UNSIGNED:
        value = int(getattr(failure, field))
        values[field] = None if value == _NONE else value
    for field in _SIGNED:
        value = int(getattr(failure, field))
        values[field] = None if value < 0 else value
    for field in _PLAIN:
        values[field] = int(getattr(failure, field))
    unit = _unit_name(int(failure.code), values["board"], values["unit"])
    return FailureFields(code=int(failure.code), status=name, unit_name=unit, **values)


def _unit_name(code: int, board: int | None, unit: int | None) -> str | None:
    """NO_UNIT: the host's own access to a board failed, as where its daemon has gone."""
    if unit is not None:
        return _UNITS[unit] if unit < len(_UNITS) else None
    lost = board is not None and code == native.lib().LORA_ERR_TRANSPORT
    return NO_UNIT if lost else None


def to_error(failure: Any, report: str = "") -> LoraError:
    """The exception for a `struct lora_failure *`."""
    fields = failure_fields(failure)
    message = native.ffi().string(failure.message).decode(errors="replace") or fields.status
    if fields.unit_name == NO_UNIT:
        message += f"; unit: {NO_UNIT}, the host did not reach the board"
    kind = error_classes().get(fields.code, TransportError)
    return kind(message, failure=fields, report=report)
