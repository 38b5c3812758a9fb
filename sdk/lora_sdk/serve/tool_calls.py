"""Calls of tools in a model's text, found as it comes, in the form that its template asks for.

Text before a call is passed on at once. What may begin a call is held back until the call is whole.
A call that cannot be read, or of a tool that was not offered, stays text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from lora_sdk.serve.tool_formats import Schemas, ToolFormat

_BARE_LENGTH = 64  # characters in which a call without a mark is told from text


@dataclass(frozen=True)
class ToolCall:
    """A call: `arguments` is JSON text."""

    name: str
    arguments: str
    id: str = field(default="", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """As a message has it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class ToolText:
    """Splits one text into content and calls."""

    def __init__(
        self, format: ToolFormat | None, schemas: Schemas | None = None, single: bool = False
    ) -> None:
        """`format` None: all is content. `schemas`: of the tools that are offered, None for any.
        `single`: calls after the first are dropped."""
        self._format = format
        self._schemas = schemas
        self._single = single
        self._after_call = False
        self._held = self._space = ""
        self._begun = self._bare = False
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
            if not self._bare:
                content += self._content(self._before_call(form))
            if self._bare or not form.end or not self._held.startswith(form.begin):
                break
            if form.end not in self._held:
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
            return self._rest(), []
        found = None
        if self._bare or (not form.end and held.startswith(form.begin)):
            found = self._parse(form, held.removeprefix(form.begin))
        return ("", found) if found is not None else (self._content(held) + self._rest(), [])

    def _rest(self) -> str:
        """White space that is all of the content."""
        rest, self._space = self._space, ""
        return rest

    def _before_call(self, form: ToolFormat) -> str:
        """Take off what lies before a call, and cannot begin one."""
        held = self._held
        start = _place(held, form.begin)
        if form.bare is not None and not (form.opening and self._begun):
            start = min(start, self._bare_place(form, form.bare, held))
        self._held = held[start:]
        return held[:start]

    def _bare_place(self, form: ToolFormat, bare: re.Pattern[str], held: str) -> int:
        """Where a call without a mark begins, or may begin."""
        begun = held.lstrip() if form.opening else held
        lead = len(held) - len(begun)
        if form.opening:
            found = bare.match(begun)
            if found is None:
                return 0 if not begun or (_may_be(begun) and len(begun) < _BARE_LENGTH) else 1 << 62
        else:
            found = bare.search(begun)
        if found is not None:
            marked = held.find(form.begin)
            if not 0 <= marked < lead + found.start():
                self._bare = True
            return 0 if form.opening else found.start()
        last = max(held.rfind("{"), held.rfind("["))
        if last >= 0 and len(held) - last < _BARE_LENGTH and _may_be(held[last:]):
            return last
        return 1 << 62

    def _content(self, text: str) -> str:
        """White space before and after calls is none of the content."""
        if self._after_call:
            text = text.lstrip()
        text, self._space = self._space + text, ""
        if not self._begun and not text.strip():
            self._space = text
            return ""
        if text:
            self._begun, self._after_call = True, False
        return text

    def _parse(self, form: ToolFormat, text: str) -> list[ToolCall] | None:
        try:
            found = form.parse(text, self._schemas or {})
        except (ValueError, RecursionError):
            return None
        if self._schemas is not None and any(one.name not in self._schemas for one in found):
            return None
        if self._single:
            found = [] if self.count else found[:1]
        self.count += len(found)
        self._after_call, self._space = True, ""
        return [
            ToolCall(
                one.name, json.dumps(one.arguments, ensure_ascii=False), one.id or form.make_id()
            )
            for one in found
        ]


def _place(text: str, begin: str) -> int:
    """Where `begin` begins, or may begin at the end; the text's length for neither."""
    start = text.find(begin)
    if start >= 0:
        return start
    longest = min(len(text), len(begin) - 1)
    ends = (len(text) - kept for kept in range(longest, -1, -1))
    return next(at for at in ends if begin.startswith(text[at:]))


_BEGINNINGS = re.compile(r'\{\s*("\w*)?|\[\s*([A-Za-z_][\w.]*\s*)?')


def _may_be(text: str) -> bool:
    """Whether a text can go on to a call without a mark."""
    return _BEGINNINGS.fullmatch(text) is not None
