"""Regular expressions over module names, in time linear in the name: a folder's expressions are
foreign, and Python's own matcher can take exponential time while it holds the interpreter's lock.

What they mean is what PEFT's use of `re` gives. What RE2 cannot match is refused by name, except
lookaheads at the beginning, which are matched one by one. Module names are ASCII without line
ends, so that `\\d`, `\\w` and `$` mean the same to both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_LENGTH = 4096
_MAX_MEMORY = 1 << 20  # bytes of a compiled expression and its states
# Python and RE2 both take these and read them differently.
_AMBIGUOUS = (("{,", "{0,"), ("[[:", "the characters themselves"))


class PatternFault(ValueError):
    """An expression that `re` or RE2 does not take, or that they read differently."""


@dataclass(frozen=True)
class Pattern:
    """A checked expression: lookaheads (wanted, expression) at the beginning, and the rest."""

    ahead: tuple[tuple[bool, Any], ...]
    rest: Any

    def fullmatch(self, name: str) -> bool:
        """As re.fullmatch."""
        for wanted, found in self.ahead:
            if (found.match(name) is not None) != wanted:
                return False
        return self.rest.fullmatch(name) is not None


def check(text: str, *, groups: bool = True) -> None:
    """PatternFault if `text` cannot be part of an expression. `groups`: whether it may capture."""
    if _checked(text) and not groups:
        raise PatternFault("a group; write (?: ... )")
    _compiled(text)


@lru_cache(64)
def whole(text: str) -> Pattern:
    """The expression of a whole name. PatternFault."""
    _checked(text)
    ahead, rest = _lookaheads(text)
    return Pattern(tuple((wanted, _compiled(part)) for wanted, part in ahead), _compiled(rest))


def ends_with(text: str, name: str) -> bool:
    """Whether `text` matches the end of a name, from a dot on: PEFT's keys of rank_pattern."""
    return _compiled(rf"(.*\.)?({text})").fullmatch(name) is not None


def layer_after(text: str, name: str) -> int | None:
    """The layer number behind `text` in a name, None if it has none: PEFT's layers_pattern."""
    found = _compiled(rf"(?:^|.*?\.){text}\.(\d+)\.", captures=True).match(name)
    return None if found is None else int(found.group(1))


def _checked(text: str) -> int:
    """The number of its groups."""
    if len(text) > MAX_LENGTH:
        raise PatternFault(f"{len(text)} characters; at most {MAX_LENGTH}")
    for found, meant in _AMBIGUOUS:
        if found in text:
            raise PatternFault(f"{found!r}, which matchers read differently; write {meant}")
    try:
        text.encode()  # RE2 takes UTF-8
        return re.compile(text).groups
    except UnicodeEncodeError:
        raise PatternFault("half of a surrogate pair; expected Unicode text") from None
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternFault(str(error)) from None


@lru_cache(8192)
def _compiled(text: str, captures: bool = False) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = not captures  # many groups make a match slow
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not taken"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise PatternFault(f"{reason} (RE2's syntax; or name the modules in a list)") from None


def _lookaheads(text: str) -> tuple[list[tuple[bool, str]], str]:
    """The lookaheads that begin an expression, and the rest."""
    found: list[tuple[bool, str]] = []
    rest = text.removeprefix("^") if text.startswith(("^(?!", "^(?=")) else text
    while rest.startswith(("(?!", "(?=")):
        end = _closing(rest)
        found.append((rest[2] == "=", rest[3:end]))
        rest = rest[end + 1 :]
    if found and _closing(f"({rest})", stop="|") is not None:
        raise PatternFault("alternatives behind a lookahead; put them into (?: ... )")
    return found, rest


def _closing(text: str, stop: str = ")") -> Any:
    """Where the group that begins `text` has its first `stop`, None if it has none before its end.
    `text` is valid to `re`."""
    depth, at, inside = 0, 0, False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif inside:
            inside = letter != "]"
        elif letter == "[":
            inside = True
            at += len(re.match(r"\^?\]?", text[at + 1 :])[0])  # type: ignore[index]
        elif letter == "(":
            depth += 1
        elif depth == 1 and letter == stop:
            return at
        elif letter == ")":
            depth -= 1
        at += 1
    return None
