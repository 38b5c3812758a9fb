"""Bounded YAML: mappings with text keys, lists, JSON's scalars, hexadecimal integers and infinity.
No tags, dates or second documents. Aliases are copied."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .errors import LoraError
from .regular_file import names_no_file, read_regular

MAX_BYTES = 256 << 10
MAX_DEPTH = 32
MAX_VALUES = 20_000

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,32}")
_FLOAT = re.compile(_INTEGER.pattern + r"(\.[0-9]{0,40}([eE][-+]?[0-9]{1,4})?|[eE][-+]?[0-9]{1,4})")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


class YamlFault(ValueError):
    """Text is not in this subset of YAML. The message names line and column."""


def read_yaml(path: Path, error: type[LoraError]) -> Any:
    """The content of a file of at most MAX_BYTES. Raises `error`, naming the file and the line, if
    it is missing, larger, or not in this subset of YAML."""
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8")
    except OSError as cause:
        missing = names_no_file(cause)
        raise error(f"{path}: cannot be read: {cause.strerror or cause}", usage=missing) from cause
    except UnicodeDecodeError as cause:
        raise error(f"{path}: cannot be read: not UTF-8 text", usage=False) from cause
    try:
        return parse_yaml(text)
    except YamlFault as cause:
        raise error(f"{path}: not YAML: {cause}", usage=False) from cause


def parse_yaml(text: str) -> Any:
    """The content of the document in `text`. YamlFault if it is invalid."""
    events = _events(text)
    next(events)  # the stream's start
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    value = _Reader(events).value(next(events), 0)
    next(events)  # the document's end
    after = next(events)
    if not isinstance(after, yaml.StreamEndEvent):
        raise _fault(after, "a second document; one expected")
    return value


def _events(text: str) -> Iterator[yaml.Event]:
    """The parser's events. The parser has its own stack, so nesting needs no recursion here."""
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as cause:
        problem = cause.problem or cause.context or "malformed"
        mark = cause.problem_mark or cause.context_mark
        raise YamlFault(f"{_where(mark)}{problem}") from cause
    except yaml.reader.ReaderError as cause:
        raise YamlFault(f"character {cause.position}: {cause.reason}") from cause
    except (ValueError, OverflowError, IndexError) as cause:  # numbers in directives and escapes
        raise YamlFault(f"number out of range: {cause}") from cause


class _Reader:
    """Builds values from events and counts them, including those that an alias repeats."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, Any] = {}
        self._count = 0

    def value(self, event: Any, depth: int) -> Any:
        self._bound(event, depth)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _fault(event, f"alias {event.anchor!r:.40} of no value before it")
            return self._copy(event, self._anchors[event.anchor], depth)
        if event.tag is not None:
            raise _fault(event, "tags are not read; write the value without one")
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth + 1)
        else:
            value = self._mapping(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _bound(self, event: yaml.Event, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise _fault(event, f"more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise _fault(event, f"nested deeper than {MAX_DEPTH}")

    def _sequence(self, depth: int) -> list[Any]:
        values = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self.value(event, depth))
        return values

    def _mapping(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self.value(event, depth)
            if not isinstance(key, str):
                raise _fault(event, f"key {str(key)[:40]!r} found, text expected")
            if key in values:
                raise _fault(event, f"key {key[:40]!r} appears twice")
            values[key] = self.value(next(self._events), depth)
        return values

    def _copy(self, event: yaml.Event, value: Any, depth: int) -> Any:
        self._bound(event, depth)
        if isinstance(value, list):
            return [self._copy(event, item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {key: self._copy(event, item, depth + 1) for key, item in value.items()}
        return value


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = event.value
    if event.style is not None:  # quoted, or a block
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITY.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def _fault(event: yaml.Event, what: str) -> YamlFault:
    return YamlFault(f"{_where(event.start_mark)}{what}")


def _where(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
