"""A request's fields, checked one by one up to the first that is wrong."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.other_fields import admitted, why_refused

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def items(least: int = 0, most: int = 4096) -> Any:
    """How many items a list has. The first that is wrong ends its check."""
    return Field(min_length=least, max_length=most, fail_fast=True)


def at_most(most: int) -> BeforeValidator:
    """How many items an object has; none is looked at where there are more."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise PydanticCustomError(
                "too_long", "Dictionary should have at most {most} items", {"most": most}
            )
        return value

    return BeforeValidator(check)


class Fields(BaseModel):
    """A JSON object of known, typed fields; null stands for a field that is not given. What becomes
    of others is `other_fields`' rule; with a context {"strict": True}, unknown ones are refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        protected_namespaces=(),
        json_schema_extra=lambda schema: schema.pop("additionalProperties", None),  # ignored
    )

    @model_validator(mode="before")
    @classmethod
    def _admit(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            return value
        return admitted(value, _names(cls), bool((info.context or {}).get("strict")))


@cache
def _names(kind: type[Fields]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in kind.model_fields.items())


class StreamedFields(Fields):
    """A request whose answer may be streamed."""

    stream: bool = False


Body = TypeVar("Body", bound=Fields)


def parse(kind: type[Body], value: Any, strict: bool = False) -> Body:
    """`value` as `kind`; ApiError 400 names the field. `strict`: unknown fields are refused."""
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object")
    try:
        return kind.model_validate(value, context={"strict": strict})
    except ValidationError as error:
        raise _field_error(error, value) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None


def _field_error(error: ValidationError, value: dict[str, Any]) -> ApiError:
    """The first field at fault. A field of several types has an error for each of them."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    name = str(first["loc"][0]) if first["loc"] else None
    path = _path(first, value)
    if first["type"] == "extra_forbidden":
        why = why_refused(str(first["loc"][-1]))
        return ApiError(400, f"{path:.200}: {why}", param=f"{name:.200}")
    reasons = dict.fromkeys(e["msg"] for e in found if e["loc"][:1] == first["loc"][:1])
    message = "; ".join(reasons).replace("Input should be", "expected")
    return ApiError(400, f"{path:.200}: {message:.300}", param=name)


def _path(fault: ErrorDetails, value: Any) -> str:
    """Where in the body a fault is. Of the places that pydantic names, those are left out that are
    no keys or indices of the body: they name one of a field's types."""
    path: list[str] = []
    for part in fault["loc"]:
        inside = part in value if isinstance(value, dict) else _is_index(part, value)
        if inside:
            value = value[part]
        if inside or (part == fault["loc"][-1] and fault["type"] == "missing"):
            path.append(str(part))
    return ".".join(path)


def _is_index(part: object, value: object) -> bool:
    return isinstance(value, list) and isinstance(part, int) and part < len(value)
