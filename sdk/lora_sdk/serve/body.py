"""A request's body: bounded in bytes and time before it is parsed, then checked field by field."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from starlette.requests import ClientDisconnect

from lora_sdk.serve.errors import ApiError, ClientGone
from lora_sdk.serve.other_fields import admitted, why_refused
from lora_sdk.serve.settings import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DISCARDED = 16  # times max_body that are read and dropped, so that the client sees the answer


class Fields(BaseModel):
    """A JSON object of known, typed fields; null stands for a field that is not given. What becomes
    of others is `other_fields`' rule; with a context {"strict": True}, unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

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


async def read_body(request: Request, settings: Settings, kind: type[Body]) -> Body:
    """The request's body as `kind`. ApiError 400, 408, 413 or 415; ClientGone."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":  # which a foreign web page cannot send without being asked
        raise ApiError(415, "the content type is not application/json")
    try:
        raw = await asyncio.wait_for(_read(request, settings.max_body), settings.body_timeout)
    except asyncio.TimeoutError:
        raise ApiError(408, f"the body did not arrive within {settings.body_timeout:g} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    return parse(kind, _json(raw), settings.strict)


async def _read(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
            if size > _DISCARDED * limit:
                break
    if size > limit:
        raise ApiError(413, f"the body has more than {limit} bytes")
    return b"".join(chunks)


def _json(raw: bytes) -> Any:
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if _SURROGATE.search(raw):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not UTF-8") from None
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds half of a surrogate pair") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ApiError(400, f"the body is not JSON{where}") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are Python's own, not JSON


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
