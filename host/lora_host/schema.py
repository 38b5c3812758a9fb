"""Reads a YAML file and checks it against a JSON schema."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import LoraError
from .naming import did_you_mean
from .schema_match import surely_valid
from .yaml_file import read_yaml

if TYPE_CHECKING:
    from jsonschema import ValidationError


def read_checked(path: Path, schema_path: Path, error: type[LoraError]) -> dict[str, Any]:
    """The file's content. Raises `error`, naming file and field, if it is missing, not YAML or not
    valid by the schema."""
    content = read_yaml(path, error)
    if not surely_valid(_schema(schema_path), content):
        fault = _fault(schema_path, content)
        if fault is not None:
            raise error(f"{path}: {_one_line(fault)}", usage=False)
    assert isinstance(content, dict)  # every schema here is of an object
    return content


@cache
def _schema(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _fault(schema_path: Path, content: object) -> ValidationError | None:
    from jsonschema import Draft202012Validator, validators
    from jsonschema.exceptions import best_match

    # JSON Schema takes 32.0 for an integer; what is read here counts things.
    counts = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    strict = validators.extend(Draft202012Validator, type_checker=counts)  # type: ignore[no-untyped-call]
    fault: ValidationError | None = best_match(strict(_schema(schema_path)).iter_errors(content))
    return fault


def _one_line(fault: ValidationError) -> str:
    where = ".".join(str(step) for step in fault.absolute_path) or "top level"
    known = fault.schema.get("properties", {}) if isinstance(fault.schema, dict) else {}
    if fault.validator == "additionalProperties" and isinstance(fault.instance, dict):
        extra = sorted(str(key) for key in fault.instance if key not in known)
        return f"{where}: unknown field {extra[0]!r}, {did_you_mean(extra[0], known)}"
    if fault.validator == "required":
        instance: Any = fault.instance
        required: Any = fault.validator_value
        missing = [name for name in required if name not in instance]
        return f"{where}: field {missing[0]!r} is missing"
    found = str(fault.instance)
    found = found if len(found) <= 60 else found[:57] + "..."
    wanted = fault.validator_value
    if fault.validator == "type" and isinstance(wanted, list):
        wanted = " or ".join(wanted)
    return f"{where}: found {found}, expected {fault.validator} {wanted}"
