"""Described dataclasses as text: docstrings, and tables for the docs."""

from __future__ import annotations

import textwrap
from typing import TypeVar

from lora_sdk.arguments.option import Option, options_of

T = TypeVar("T")
WIDTH = 96


def documented(owner: type[T]) -> type[T]:
    """Class decorator: appends the fields' descriptions to the class's docstring."""
    owner.__doc__ = f"{(owner.__doc__ or '').rstrip()}\n\n{arguments_text(owner)}\n"
    return owner


def arguments_text(owner: type) -> str:
    """The arguments of a described dataclass as a docstring section."""
    return "\n".join(["Args:", *map(_entry, options_of(owner).values())])


def _entry(option: Option) -> str:
    text = f"{option.name}: {option.help}. {_values(option)}Default: {default_text(option)}."
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="        ")


def _values(option: Option) -> str:
    return f"{_first_upper(option.expected)}. " if _bounded(option) else ""


def _bounded(option: Option) -> bool:
    return bool(option.choices) or option.low is not None


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def default_text(option: Option) -> str:
    """The default as text."""
    return option.unset or ("none" if option.default in (None, (), {}) else repr(option.default))


def markdown_table(owner: type) -> str:
    """The arguments of a described dataclass as a Markdown table, without those that it inherits
    unchanged."""
    lines = ["| argument | flag | values | default | meaning |", "|---|---|---|---|---|"]
    for name in owner.__annotations__:
        option = options_of(owner)[name]
        flags = ", ".join(f"`{flag}`" for flag in option.flags)
        cells = (f"`{option.name}`", flags, _cell(option), _default_cell(option), option.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(option: Option) -> str:
    return option.expected if _bounded(option) else f"`{option.type}`"


def _default_cell(option: Option) -> str:
    if option.unset or option.default in (None, (), {}):
        return default_text(option)
    return f"`{option.default!r}`"
