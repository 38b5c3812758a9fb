"""Values in calls that are not JSON: Python's literals, and Gemma's with strings between marks."""

from __future__ import annotations

import json
import re
from typing import Any

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}
_WORDS = {
    **{"true": True, "True": True, "false": False, "False": False},
    **{"null": None, "None": None},
}
_MAX_DIGITS = 400


class Reader:
    """Reads a text from its beginning on; ValueError where it is something else. `mark`: begins and
    ends a string; "": quotes do."""

    def __init__(self, text: str, mark: str = "") -> None:
        self._text = text
        self._mark = mark
        self._at = 0

    def skip(self) -> None:
        """Over white space."""
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def has(self, word: str) -> bool:
        """Whether `word` comes next, which is then read."""
        self.skip()
        found = self._text.startswith(word, self._at)
        self._at += len(word) * found
        return found

    def expect(self, word: str) -> None:
        """Reads `word`."""
        if not self.has(word):
            raise ValueError(f"no {word}")

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        self.skip()
        return self._at == len(self._text)

    def name(self) -> str:
        """A bare word."""
        self.skip()
        return self._match(_NAME).group()

    def value(self) -> Any:
        """A string, number, truth, null, list or object."""
        if self.has("["):
            return self._items("]", self.value)
        if self.has("{"):
            return dict(self._items("}", self._pair))
        text = self._string()
        if text is not None:
            return text
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            word = self.name()
            if word not in _WORDS:
                raise ValueError(f"no value: {word}")
            return _WORDS[word]
        self._at = found.end()
        if len(found.group()) > _MAX_DIGITS:
            raise ValueError("a number of too many digits")
        return json.loads(found.group())

    def arguments(self, end: str) -> dict[str, Any]:
        """name=value, ... up to `end`."""
        return dict(self._items(end, lambda: self._named("=")))

    def _items(self, end: str, one: Any) -> list[Any]:
        found: list[Any] = []
        while not self.has(end):
            if found:
                self.expect(",")
                if self.has(end):
                    break
            found.append(one())
        return found

    def _pair(self) -> tuple[str, Any]:
        key = self._string()
        if key is None:
            return self._named(":")
        self.expect(":")
        return key, self.value()

    def _named(self, sign: str) -> tuple[str, Any]:
        key = self.name()
        self.expect(sign)
        return key, self.value()

    def _string(self) -> str | None:
        self.skip()
        if self._mark:
            if not self.has(self._mark):
                return None
            text, found, _ = self._text[self._at :].partition(self._mark)
            if not found:
                raise ValueError("a string without end")
            self._at += len(text) + len(self._mark)
            return text
        if self._text[self._at : self._at + 1] not in ("'", '"'):
            return None
        match = self._match(_STRING)
        return _ESCAPE.sub(_unescaped, match.group(1) or match.group(2) or "")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"unexpected {self._text[self._at : self._at + 10]!r}")
        self._at = found.end()
        return found


def _unescaped(match: re.Match[str]) -> str:
    what = match.group(1)
    return chr(int(what[1:], 16)) if len(what) > 1 else _ESCAPED.get(what, what)
