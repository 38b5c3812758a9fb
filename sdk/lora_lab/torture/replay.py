"""The run of a replay file, checked against the table of faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_lab.torture.faults import EMULATED, LATEST, MOST_FAULTS, SIZES, Fault, Run
from lora_lab.torture.host import kinds as host_kinds
from lora_lab.torture.host import places as host_places
from lora_lab.torture.kinds import BY_NAME, Kind
from lora_lab.torture.numbers import Number
from lora_lab.torture.phases import PHASES


def run_from(values: Mapping[str, Any]) -> Run:
    """The run. RequestError names the field, what was found and what was expected."""
    target = values.get("target", EMULATED)
    if target != EMULATED:
        return _of_processes(values)
    phase = _name(values, "phase", tuple(PHASES))
    boards = _count(values, "boards", max(SIZES) + 1)
    faults = values.get("faults")
    if boards not in SIZES:
        raise RequestError(f"replay file: boards {boards}; expected 1, 2 or 4")
    if not isinstance(faults, list) or len(faults) > MOST_FAULTS:
        found = f"{len(faults)} of them" if isinstance(faults, list) else repr(faults)[:40]
        raise RequestError(
            f"replay file: faults: {found}; expected a list of at most {MOST_FAULTS} faults"
        )
    made = tuple(_fault(fault, phase, boards) for fault in faults)
    return Run(_count(values, "number", 1 << 32), phase, boards, made)


def _of_processes(values: Mapping[str, Any]) -> Run:
    target = _name(values, "target", tuple(host_places.PLACES))
    phase = _name(values, "phase", host_kinds.phases_of(target))
    faults = values.get("faults")
    if not isinstance(faults, list) or len(faults) != 1 or not isinstance(faults[0], dict):
        raise RequestError(f"replay file: faults {faults!r:.40}; expected a list of one fault")
    known = tuple(kind.name for kind in host_kinds.kinds_of(target, phase))
    fault = Fault(_name(faults[0], "kind", known), 0, 0)
    return Run(_count(values, "number", 1 << 32), phase, host_places.BOARDS, (fault,), target)


def _fault(values: object, phase: str, boards: int) -> Fault:
    if not isinstance(values, dict):
        raise RequestError(
            f"replay file: fault {values!r:.40}; expected an object with kind, board, at, numbers"
        )
    kind = BY_NAME[_name(values, "kind", tuple(BY_NAME))]
    if phase not in kind.phases:
        raise RequestError(
            f"replay file: {kind.name} in phase {phase}; expected {', '.join(kind.phases)}"
        )
    if boards < kind.least:
        raise RequestError(
            f"replay file: {kind.name} with boards {boards}; expected at least {kind.least}"
        )
    numbers = values.get("numbers", [])
    drawn = len(kind.numbers)
    if not isinstance(numbers, list) or len(numbers) != drawn:
        raise RequestError(
            f"replay file: {kind.name}: numbers {numbers!r:.40}; expected {drawn} of them"
        )
    pairs = zip(kind.numbers, numbers, strict=True)
    found = tuple(_number(kind, number, value) for number, value in pairs)
    return Fault(kind.name, _count(values, "board", boards), _count(values, "at", LATEST), found)


def _number(kind: Kind, number: Number, value: object) -> int:
    """One that a campaign draws: the emulator knows no other fault."""
    if isinstance(value, int) and not isinstance(value, bool) and value in number.values:
        return value
    raise RequestError(
        f"replay file: {kind.name}: {number.name} {value!r:.40}; expected {number.expected}"
    )


def _name(values: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    name = values.get(key)
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else "expected a name"
        raise RequestError(f"replay file: {key} {name!r:.40} is not known; {hint}")
    return name


def _count(values: Mapping[str, Any], key: str, limit: int) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise RequestError(f"replay file: {key} {value!r:.40}; expected 0 to {limit - 1}")
    return value
