"""Values as Tcl reads them: words, lists and dictionaries, whatever characters are in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-+=,%@")


def word(text: object) -> str:
    """One word of a list."""
    value = str(text)
    if value and _PLAIN.issuperset(value):
        return value
    if _balanced(value):
        return f"{{{value}}}"
    return "".join(one if one in _PLAIN else _escaped(one) for one in value)


def words(values: Iterable[object]) -> str:
    """A list."""
    return " ".join(word(value) for value in values)


def pairs(values: Mapping[str, object]) -> str:
    """A dictionary."""
    return words(one for pair in values.items() for one in pair)


def assigned(name: str, values: Mapping[str, object]) -> str:
    """Lines that make the variable `name` a dictionary."""
    rows = [f"dict set {name} {word(key)} {word(value)}" for key, value in values.items()]
    return "\n".join([f"set {name} [dict create]", *rows, ""])


def _balanced(value: str) -> bool:
    depth = 0
    for one in value:
        depth += (one == "{") - (one == "}")
        if depth < 0 or one == "\\":
            return False
    return depth == 0


def _escaped(one: str) -> str:
    return "\\n" if one == "\n" else f"\\{one}"
