"""Calls of tools in a model's text, found as it comes, in the form that its template asks for.

Text before a call is passed on at once. What may begin a call is held back until the call is whole.
A call that is not valid JSON stays text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Parsed = list[tuple[str, Any]]
"""(name, arguments) of each call."""


@dataclass(frozen=True)
class ToolCall:
    """A call: `arguments` is JSON text."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """As a message has it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls: `begin` opens one, `end` closes it, "" where the text's
    end does; `parse` reads what lies between, ValueError for anything else. `hint`: a text that
    templates of the family hold. `opening`: calls begin the text and need no `begin`."""

    name: str
    hint: str
    begin: str
    end: str
    parse: Callable[[str], Parsed]
    opening: bool = False


def format_of(template: str) -> ToolFormat | None:
    """The form that a chat template asks for, None where it knows no tools."""
    return next((one for one in _FORMATS if one.hint in template), None)


class ToolText:
    """Splits one text into content and calls."""

    def __init__(self, format: ToolFormat | None, single: bool = False) -> None:
        """`format` None: all is content. `single`: calls after the first are dropped."""
        self._format = format
        self._single = single
        self._after_call = False
        self._held = ""
        self._begun = False
        self.count = 0
        """Calls so far."""

    @property
    def called(self) -> bool:
        """Whether a tool is called."""
        return self.count > 0

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """The content and the calls that `text` makes definite."""
        form = self._format
        if form is None:
            return text, []
        self._held += text
        content, calls = "", []
        while True:
            content += self._content(self._before_call(form))
            if not self._held.startswith(form.begin) or not form.end or form.end not in self._held:
                break
            call, _, self._held = self._held[len(form.begin) :].partition(form.end)
            found = self._parse(form, call)
            if found is None:
                content += self._content(form.begin + call + form.end)
            else:
                calls += found
        return content, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """The rest, once the text has ended."""
        held, self._held = self._held, ""
        form = self._format
        if form is None or not held:
            return "", []
        found = None
        if not form.end:
            found = self._parse(form, held.removeprefix(form.begin))
        return ("", found) if found is not None else (self._content(held), [])

    def _before_call(self, form: ToolFormat) -> str:
        """Take off what lies before a call, and cannot begin one."""
        held = self._held
        if form.opening and not self._begun and (not held.strip() or held.lstrip()[0] in "{[<"):
            return ""
        start = held.find(form.begin)
        if start < 0:
            longest = min(len(held), len(form.begin) - 1)
            ends = (len(held) - kept for kept in range(longest, -1, -1))
            start = next(at for at in ends if form.begin.startswith(held[at:]))
        self._held = held[start:]
        return held[:start]

    def _content(self, text: str) -> str:
        """White space after a call is none of the content."""
        if self._after_call:
            text = text.lstrip()
        if text:
            self._begun, self._after_call = True, False
        return text

    def _parse(self, form: ToolFormat, text: str) -> list[ToolCall] | None:
        try:
            found = form.parse(text)
        except (ValueError, RecursionError):
            return None
        if self._single:
            found = [] if self.count else found[:1]
        self.count += len(found)
        self._after_call = True
        return [ToolCall(name, json.dumps(given, ensure_ascii=False)) for name, given in found]


def _object(value: Any, arguments: str) -> tuple[str, Any]:
    """Name and arguments of {"name": ..., arguments: {...}}."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no name")
    given = value.get(arguments, {})
    if not isinstance(given, dict):
        raise ValueError("arguments are no object")
    return value["name"], given


def _hermes(text: str) -> Parsed:
    return [_object(json.loads(text), "arguments")]


def _mistral(text: str) -> Parsed:
    """A list of objects, or in the later form NAME{...}."""
    if (text := text.strip()).startswith("["):
        return [_object(one, "arguments") for one in json.loads(text)]
    found: Parsed = []
    for part in text.split("[TOOL_CALLS]"):
        match = re.fullmatch(r"\s*([\w.-]+)(?:\[ARGS\])?(\{.*\})\s*", part, re.DOTALL)
        if match is None:
            raise ValueError("no call")
        found.append((match.group(1), json.loads(match.group(2))))
    return found


def _llama(text: str) -> Parsed:
    """Objects, between semicolons."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.strip().removeprefix("<|python_tag|>").strip()
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        found.append(_object(value, "parameters"))
        at = end + len(re.match(r"[\s;]*", text[end:]).group())  # type: ignore[union-attr]
    if not found:
        raise ValueError("no call")
    return found


def _named(name: str) -> Callable[[str], Parsed]:
    return lambda text: [(name, json.loads(text))]


def _listed(text: str) -> Parsed:
    return [_object(one, "parameters") for one in json.loads(text)]


def forced_format(name: str | None) -> ToolFormat:
    """Where a grammar forces calls: the arguments of the tool `name` alone, or a list of calls."""
    parse = _listed if name is None else _named(name)
    return ToolFormat("forced", "", "\0", "", parse, opening=True)


_FORMATS = (
    ToolFormat("hermes", "<tool_call>", "<tool_call>", "</tool_call>", _hermes),
    ToolFormat("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", _mistral),
    ToolFormat("llama3", "ipython", "<|python_tag|>", "", _llama, opening=True),
)
