"""A quick answer for values that are valid by a JSON schema, which files almost always are.

jsonschema takes 0.1 s to import and longer to check than the rest of reading. What is not surely
valid here is left to it, and so is the message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,),
    "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def surely_valid(schema: object, value: object) -> bool:
    """Whether `value` is valid by `schema`. False also where this cannot tell: a keyword that is
    not of `_KEYWORDS`, 32.0 for an integer, 1 beside true."""
    return _Match(schema).valid(schema, value)


class _Match:
    """`root`: the schema that references point into."""

    def __init__(self, root: object) -> None:
        self.root = root

    def valid(self, schema: object, value: object) -> bool:
        if not isinstance(schema, Mapping):
            return schema is True
        return all(
            keyword in _KEYWORDS and _KEYWORDS[keyword](self, schema, value) for keyword in schema
        )


def _type(_match: _Match, schema: Schema, value: object) -> bool:
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(type(value) in _TYPES.get(name, ()) for name in names)


def _properties(match: _Match, schema: Schema, value: object) -> bool:
    """Each field by `properties`, `patternProperties` and `additionalProperties`."""
    if not isinstance(value, dict):
        return True
    named: Schema = schema.get("properties", {})
    patterns: Schema = schema.get("patternProperties", {})
    for key, inner in value.items():
        if not isinstance(key, str):
            return False
        by = [named[key]] if key in named else []
        by += [rule for pattern, rule in patterns.items() if re.search(pattern, key)]
        rules = by or [schema.get("additionalProperties", True)]
        if not all(match.valid(rule, inner) for rule in rules):
            return False
    return True


def _items(match: _Match, schema: Schema, value: object) -> bool:
    rule = schema["items"]
    return not isinstance(value, list) or all(match.valid(rule, item) for item in value)


def _reference(match: _Match, schema: Schema, value: object) -> bool:
    found: Any = match.root
    start, *names = schema["$ref"].split("/")
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return start == "#" and found is not None and match.valid(found, value)


def _equal(a: object, b: object) -> bool:
    return type(a) is type(b) and isinstance(a, str | int | float | None) and a == b


def _unique(_match: _Match, schema: Schema, value: object) -> bool:
    if schema["uniqueItems"] is False or not isinstance(value, list):
        return True
    return all(isinstance(item, str) for item in value) and len(set(value)) == len(value)


def _multiple(_match: _Match, schema: Schema, value: object) -> bool:
    if type(value) not in (int, float):
        return True
    return type(value) is int and value % schema["multipleOf"] == 0


def _bound(kind: type, holds: Callable[[Any, Any], bool], keyword: str) -> _Keyword:
    return lambda _match, schema, value: (
        not isinstance(value, kind) or holds(len(value), schema[keyword])  # type: ignore[arg-type]
    )


def _limit(holds: Callable[[Any, Any], bool], keyword: str) -> _Keyword:
    return lambda _match, schema, value: (
        not isinstance(value, int | float) or holds(value, schema[keyword])
    )


def _at_least(a: Any, b: Any) -> bool:
    return bool(a >= b)


def _at_most(a: Any, b: Any) -> bool:
    return bool(a <= b)


_Keyword = Callable[[_Match, Schema, object], bool]
_KEYWORDS: dict[str, _Keyword] = {
    **dict.fromkeys(("$schema", "$defs", "title", "description"), lambda *_: True),
    "properties": _properties,
    "patternProperties": lambda m, s, v: "properties" in s or _properties(m, s, v),
    "additionalProperties": lambda m, s, v: (
        "properties" in s or "patternProperties" in s or _properties(m, s, v)
    ),
    "type": _type,
    "items": _items,
    "$ref": _reference,
    "required": lambda _m, s, v: not isinstance(v, dict) or all(n in v for n in s["required"]),
    "const": lambda _m, s, v: _equal(s["const"], v),
    "enum": lambda _m, s, v: any(_equal(one, v) for one in s["enum"]),
    "pattern": lambda _m, s, v: not isinstance(v, str) or bool(re.search(s["pattern"], v)),
    "allOf": lambda m, s, v: all(m.valid(one, v) for one in s["allOf"]),
    "anyOf": lambda m, s, v: any(m.valid(one, v) for one in s["anyOf"]),
    "uniqueItems": _unique,
    "multipleOf": _multiple,
    "minimum": _limit(_at_least, "minimum"),
    "maximum": _limit(_at_most, "maximum"),
    "minItems": _bound(list, _at_least, "minItems"),
    "maxItems": _bound(list, _at_most, "maxItems"),
    "maxLength": _bound(str, _at_most, "maxLength"),
    "minProperties": _bound(dict, _at_least, "minProperties"),
}
