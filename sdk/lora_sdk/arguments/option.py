"""One description of an argument: its default, help text, range and flags, kept with its field."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from lora_host import abi
from lora_host.errors import RequestError

T = TypeVar("T")
_KEY = "option"


@dataclass(frozen=True)
class Option:
    """An argument. `type` is its annotation as written; `default` what it is without one.

    `help`: one line without a period. `unset`: what the default stands for, where it does not say
    so itself. `flags` and `metavar`: on the command line, () where it has no flag. `choices`: the
    values of a string. `low`, `high`: range of a number, both included but for `above`, which
    excludes `low`; a string is the name of a constant of abi.h."""

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

    @property
    def kind(self) -> str:
        """The first type of the annotation: "int", "float", "bool", "str", "Sequence[str]"..."""
        return self.type.split(" | ")[0]

    @property
    def optional(self) -> bool:
        """Whether None is a value."""
        return self.type.endswith(" | None")

    @property
    def many(self) -> bool:
        """Whether it is a sequence, whose flag may be repeated."""
        return "Sequence[" in self.type

    @property
    def expected(self) -> str:
        """The values that it takes, in words."""
        return f"{self._one}{' or None' if self.optional else ''}"

    @property
    def _one(self) -> str:
        if self.choices:
            *others, last = map(repr, self.choices)
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
            "str": "a path" if "Path" in self.type else "a string",
        }
        return words.get(self.kind, self.type)

    @property
    def _limit(self) -> float:
        high = getattr(abi, self.high) if isinstance(self.high, str) else self.high
        return cast("float", math.inf if high is None else high)

    def check(self, value: object) -> None:
        """RequestError names the argument, what was found and what was expected."""
        if not ((value is None and self.optional) or self._fits(value)):
            raise self.refused(value)

    def refused(self, value: object) -> RequestError:
        """The error for a value that does not fit."""
        return RequestError(f"{self.name} is {value!r:.60}; expected {self.expected}")

    def parse(self, text: str) -> object:
        """The value that a flag's text stands for, or an entry of a sequence; checked."""
        try:
            value = {"int": int, "float": float}.get(self.kind, str)(text)
        except ValueError:
            raise self.refused(text) from None
        if not self.many:
            self.check(value)
        return value

    def _fits(self, value: object) -> bool:
        if self.choices:
            return isinstance(value, str) and value in self.choices
        if self.kind in ("int", "float"):
            wanted = is_integer(value) if self.kind == "int" else is_real(value)
            return wanted and self._within(cast("float", value))
        if self.kind == "bool":
            return isinstance(value, bool)
        if self.kind in ("Sequence[str]", "Sequence[int]"):
            each = _is_text if self.kind == "Sequence[str]" else is_integer
            return isinstance(value, Sequence) and not _is_text(value) and all(map(each, value))
        if self.kind == "str" and not self.many:
            return isinstance(value, str | os.PathLike)
        return True  # the owner checks what has a structure of its own

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
    """A dataclass field of this default with the description of Option."""
    facts = {"help": help, "unset": unset, "flags": flags, "metavar": metavar, "choices": choices,
             "low": low, "high": high, "above": above}  # fmt: skip
    if isinstance(default, dict):
        return cast("T", field(default_factory=dict, metadata={_KEY: facts}))
    return field(default=default, metadata={_KEY: facts})


def options_of(owner: type) -> Mapping[str, Option]:
    """Field -> its description, in the order of the arguments. TypeError for a field without."""
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
    """Checks every field of a described dataclass; RequestError as Option.check."""
    for name, described in options_of(type(values)).items():
        described.check(getattr(values, name))


def is_integer(value: object) -> bool:
    """Whether it is an integer, NumPy's too; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether it is a finite number of float64's range."""
    if not is_integer(value) and not isinstance(value, float | np.floating):
        return False
    try:
        return math.isfinite(cast("float", value))
    except OverflowError:  # an integer beyond float64
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str | bytes)
