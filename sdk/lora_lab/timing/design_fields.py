"""Values of a design's fields: each against its declared type, range or choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_lab.timing.facts import drafts

LARGEST = 1e15
"""Far beyond every rate and size of a card; products of a few such numbers stay finite."""

POSITIVE = (
    "clock_hz", "tile", "lanes", "weight_bits", "activation_bytes", "kv_bytes", "hbm_efficiency",
    "utilisation", "bits_per_second", "port_bytes", "row_group", "block_bytes", "merge",
    "prefill_utilisation",
)  # fmt: skip
SHARES = ("hbm_efficiency", "utilisation")
"""Of a peak, so 1 at most."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "row_grain": ("array", "row"),
    "gathers": ("overlapped", "stalled"),
    "norms": ("split", "replicated"),
    "softmax": ("passes", "fused"),
    "few_rows": ("alone", "in_flight"),
    "prefill_copy": ("none", "ddr"),
    "control": ("ideal", "firmware", "sequencer"),
    "operations": ("fitted", "charged"),
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


def _are_sides(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(
        isinstance(side, int) and _is_number(side) and side > 0 for side in value
    )  # fmt: skip


def _are_numbers(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_number, value.values()))


# By declared type: what a message expects, and whether a value is one. Numbers have a range too.
_TYPES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "str | None": ("text", lambda value: value is None or isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "tuple[str, ...]": ("a list of names", _are_names),
    "tuple[int, int]": ("rows and columns", _are_sides),
    "Mapping[str, float]": ("names with numbers of at least 0", _are_numbers),
}


def check_fields(kind: type, values: Mapping[str, Any], where: str) -> None:
    """`values` of the dataclass `kind`. RequestError names the first field that is missing, of
    another type, outside its range, or none of its choices."""
    for entry in fields(kind):
        if entry.name not in values:
            if entry.default is MISSING and entry.default_factory is MISSING:
                raise RequestError(f"{where}: field {entry.name!r} is missing")
            continue
        value = values[entry.name]
        if entry.type in ("int", "float"):
            _check_number(entry.name, value, where)
        elif str(entry.type) in _TYPES:
            expected, fits = _TYPES[str(entry.type)]
            if not fits(value):
                raise RequestError(f"{where}: {entry.name} is {value!r:.60}, expected {expected}")
    for name, allowed in CHOICES.items():
        if name in values and values[name] not in allowed:
            expected = " or ".join(allowed)
            raise RequestError(f"{where}: {name} is {values[name]!r:.60}, expected {expected}")
    draft = values.get("speculation")
    if draft is not None and draft not in drafts():
        raise RequestError(f"{where}: speculation {draft!r:.60} is not known; "
                           f"{did_you_mean(draft, tuple(drafts()))}")  # fmt: skip


def _check_number(name: str, value: Any, where: str) -> None:
    low = "a number above 0" if name in POSITIVE else "a number of at least 0"
    most = 1.0 if name in SHARES else LARGEST
    if not _is_number(value) or value > most or (value == 0 and name in POSITIVE):
        faster = "; a faster memory: memory_bytes_per_second" * (name == "hbm_efficiency")
        raise RequestError(
            f"{where}: {name} is {value!r:.60}, expected {low}, {most:g} at most{faster}"
        )
