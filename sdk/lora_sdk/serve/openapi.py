"""`/openapi.json` and `/docs`: what the server's paths take, from the fields that check it. Both
are made once, and ask nobody for anything."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import models_json_schema

from lora_sdk.serve.body import Fields

_REFERENCE = "#/components/schemas/"
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {"message": {"type": "string"}}}},
    "required": ["error"],
}


@dataclass(frozen=True)
class Operation:
    """A path, what it does, and the body that it takes, if it takes one."""

    path: str
    summary: str
    body: type[Fields] | None = None

    @property
    def method(self) -> str:
        """In OpenAPI's small letters."""
        return "get" if self.body is None else "post"


def openapi(operations: Sequence[Operation], version: str, keys: bool) -> dict[str, Any]:
    """The description in OpenAPI 3.1. `keys`: the server asks for one."""
    bodies = dict.fromkeys(one.body for one in operations if one.body is not None)
    kinds: list[Any] = [(body, "validation") for body in bodies]
    references, shared = models_json_schema(kinds, ref_template=_REFERENCE + "{model}")
    schemas = {**shared.get("$defs", {}), "Error": _ERROR}
    paths: dict[str, Any] = {}
    for one in operations:
        schema = None if one.body is None else references[one.body, "validation"]
        paths.setdefault(one.path, {})[one.method] = _described(one, schema)
    told: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "lora serve", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if keys:
        told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        told["security"] = [{"key": []}]
    return told


def _described(one: Operation, schema: Any) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": f"{_REFERENCE}Error"}}}
    told: dict[str, Any] = {
        "summary": one.summary,
        "operationId": one.method + re.sub(r"\W+", "_", one.path).rstrip("_"),
        "responses": {
            "200": {"description": "the answer"},
            "default": {"description": "an error", "content": error},
        },
    }
    if "{name}" in one.path:
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        told["parameters"] = [name]
    if schema is not None:
        content = {"application/json": {"schema": schema}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def docs_page(described: Mapping[str, Any]) -> str:
    """The description as a page without scripts."""
    title = f"lora serve {html.escape(described['info']['version'])}"
    lines = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        "<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "td,th{text-align:left;padding:.1em 1.5em .1em 0;vertical-align:top}"
        "code{background:#8882;padding:0 .2em}</style>",
        f"<h1>{title}</h1><p>The same for programs: <a href=openapi.json>openapi.json</a>.</p>",
    ]
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            lines.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            lines.append(f"<p>{html.escape(told['summary'])}</p>")
            if "requestBody" in told:
                schema = told["requestBody"]["content"]["application/json"]["schema"]
                lines += _table(schemas[schema["$ref"].removeprefix(_REFERENCE)])
    return "\n".join(lines)


def _table(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = schema.get("required", ())
    yield "<table><tr><th>field<th>type<th>default"
    for name, told in schema["properties"].items():
        default = "needed" if name in needed else html.escape(str(told.get("default", "")))
        yield f"<tr><td><code>{html.escape(name)}</code><td>{html.escape(_type(told))}<td>{default}"
    yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """In a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[many]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("const", schema.get("type", "any")))
