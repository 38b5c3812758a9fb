"""Arguments as fields of dataclasses: default, help text, range and flags stored with the
field, their text in docstrings and tables, and functions that take the fields as arguments."""

from __future__ import annotations

import inspect
import math
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.naming import did_you_mean

T = TypeVar("T")
_PARSERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"false": False, "true": True}.get(text, text),
}
_KEY = "option"


class ArgumentError(RequestError):
    """An argument's value is not allowed. `name`, `found` and `expected` (None not among them, even
    if it is allowed) are the parts of the message."""

    def __init__(self, name: str, found: object, expected: str, optional: bool = False) -> None:
        also = " or None" if optional else ""
        super().__init__(f"{name} is {found!r:.60}; expected {expected}{also}")
        self.name, self.found, self.expected = name, found, expected


@dataclass(frozen=True)
class Option:
    """An argument. `type` is its annotation as text.

    `help`: one line without a period. `unset`: the meaning of the default, if the value does not
    say it. `flags`: on the command line, () for none. `choices`: allowed values of a string, or of
    a bool besides True and False. `low`, `high`: inclusive range of a number; `above` excludes
    `low`; a string names a constant of abi.h.
    """

    name: str
    type: str
    default: Any
    help: str
    unset: str = ""
    flags: tuple[str, ...] = ()
    metavar: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | str | None = None
    above: bool = False

    @cached_property
    def kind(self) -> str:
        """The first type of the annotation: "int", "float", "bool", "str", "Sequence[str]"..."""
        return self.type.split(" | ")[0]

    @property
    def optional(self) -> bool:
        """Whether None is a value."""
        return self.type.endswith(" | None")

    @property
    def many(self) -> bool:
        """Whether it is a sequence. Its flag may be repeated."""
        return "Sequence[" in self.type

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        return f"{self._one}{' or None' if self.optional else ''}"

    @property
    def _one(self) -> str:
        if self.choices:
            truths = (False, True) if self.kind == "bool" else ()
            *others, last = map(repr, (*truths, *self.choices))
            return f"{', '.join(others)} or {last}"
        if self.kind == "int":
            if self.high is None:
                return "an integer" if self.low is None else f"an integer of at least {self.low}"
            return f"an integer in {self.low}..{self._limit}"
        if self.kind == "float":
            return f"a number {'above' if self.above else 'from'} {self.low:g} to {self._limit:g}"
        words = {
            "bool": "True or False",
            "Sequence[str]": "a list of strings",
            "Sequence[int]": "a list of integers",
            "str": "a path" if "Path" in self.type else "a string that is not empty",
        }
        return words.get(self.kind, self.type)

    @property
    def _limit(self) -> float:
        high = getattr(abi, self.high) if isinstance(self.high, str) else self.high
        return cast("float", math.inf if high is None else high)

    def check(self, value: object) -> None:
        """RequestError names the argument, the value found and the values expected."""
        if not ((value is None and self.optional) or self._fits(value)):
            raise self.refused(value)

    def refused(self, value: object) -> RequestError:
        """The error for a value that is not allowed."""
        return ArgumentError(self.name, value, self._one, self.optional)

    def parse(self, text: str) -> object:
        """The checked value of a flag's text. For a sequence, one entry."""
        try:
            value = _PARSERS.get(self.kind, str)(text)
        except ValueError:
            raise self.refused(text) from None
        if not self.many:
            self.check(value)
        return value

    def _fits(self, value: object) -> bool:
        if self.choices and not isinstance(value, bool):
            return isinstance(value, str) and value in self.choices
        if self.kind in ("int", "float"):
            matches = is_integer(value) if self.kind == "int" else is_real(value)
            return matches and self._within(cast("float", value))
        if self.kind == "bool" or self.choices:
            return self.kind == "bool" and isinstance(value, bool)
        if self.kind in ("Sequence[str]", "Sequence[int]"):
            fits = _is_text if self.kind == "Sequence[str]" else is_integer
            return isinstance(value, Sequence) and not _is_text(value) and all(map(fits, value))
        if self.kind == "str" and not self.many:
            return isinstance(value, str | os.PathLike) and (value != "" or self.default == "")
        return True  # structured values are checked by the owner

    def _within(self, value: float) -> bool:
        low = -math.inf if self.low is None else self.low
        return low <= value <= self._limit and not (self.above and value == low)


def option(
    default: T,
    *,
    help: str,
    unset: str = "",
    flags: tuple[str, ...] = (),
    metavar: str = "",
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | str | None = None,
    above: bool = False,
) -> T:
    """A dataclass field with this default and the attributes of Option."""
    facts = {"help": help, "unset": unset, "flags": flags, "metavar": metavar, "choices": choices,
             "low": low, "high": high, "above": above}  # fmt: skip
    if isinstance(default, dict):
        return cast("T", field(default_factory=dict, metadata={_KEY: facts}))
    return field(default=default, metadata={_KEY: facts})


def options_of(owner: type) -> Mapping[str, Option]:
    """Field -> its description, in order. TypeError for a field without a description."""
    return _collected(cast("Any", owner))


@cache
def _collected(owner: Any) -> Mapping[str, Option]:
    found = {}
    for entry in fields(owner):
        if _KEY not in entry.metadata:
            raise TypeError(f"{owner.__name__}.{entry.name} has no description; use option()")
        default = entry.default_factory() if callable(entry.default_factory) else entry.default
        found[entry.name] = Option(entry.name, str(entry.type), default, **entry.metadata[_KEY])
    return found


def check_options(values: object) -> None:
    """Check every field of a described dataclass. RequestError as for Option.check."""
    for name, described in options_of(type(values)).items():
        value = getattr(values, name)
        if value is not described.default:  # most fields: a request pays for what it sets
            described.check(value)


def is_integer(value: object) -> bool:
    """Whether it is an integer, also of NumPy. True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether it is a finite number in float64's range."""
    if not is_integer(value) and not isinstance(value, float | np.floating):
        return False
    try:
        return math.isfinite(cast("float", value))
    except OverflowError:  # an integer beyond float64
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str | bytes)


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


P = ParamSpec("P")
Self = TypeVar("Self")
Arguments = TypeVar("Arguments")
Owner = TypeVar("Owner", bound=type)


class ShortSignature(inspect.Signature):
    """All parameters, of which the text names a few: `help` and notebooks print it before the
    docstring, which describes each."""

    __slots__ = ()

    def __str__(self) -> str:
        first = [
            one.name if one.default is one.empty else f"{one.name}={one.default!r}"
            for one in list(self.parameters.values())[:SHOWN]
        ]
        return f"({', '.join([*first, *['...'] * (len(self.parameters) > SHOWN)])})"

    def format(self, **_width: Any) -> str:
        """As `help` asks for it from Python 3.13 on."""
        return str(self)


SHOWN = 3


def named_arguments(owner: Owner) -> Owner:
    """Class decorator for a described dataclass: RequestError names an unknown argument."""
    init: Callable[..., None] = owner.__init__  # type: ignore[misc]
    names = options_of(owner).keys()

    @wraps(init)
    def call(self: object, /, *args: Any, **kwargs: Any) -> None:
        if not kwargs.keys() <= names:
            unknown = next(name for name in kwargs if name not in names)
            raise RequestError(f"argument {unknown!r} is unknown; {did_you_mean(unknown, names)}")
        init(self, *args, **kwargs)

    owner.__init__ = call  # type: ignore[misc]
    return owner


def arguments_of(
    made: Callable[P, Arguments],
) -> Callable[[Callable[[Self, Arguments], None]], Callable[Concatenate[Self, P], None]]:
    """Decorator: callers pass the fields of the dataclass `made`, the method receives the object.
    Type checkers, `inspect.signature` and `help` see the fields as the method's arguments, each
    with its description."""
    owner = cast("type", made)

    def wrap(method: Callable[[Self, Arguments], None]) -> Callable[Concatenate[Self, P], None]:
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
            method(self, made(*args, **kwargs))

        call.__name__, call.__qualname__ = method.__name__, method.__qualname__
        call.__module__ = method.__module__
        call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\n{arguments_text(owner)}\n"
        first = next(iter(inspect.signature(method).parameters.values()))
        fields = inspect.signature(owner)
        parameters = [first, *fields.parameters.values()]
        call.__signature__ = ShortSignature(  # type: ignore[attr-defined]
            parameters, return_annotation=fields.return_annotation
        )
        return call

    return wrap
