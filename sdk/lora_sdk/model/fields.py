"""Typed reading of config.json. It records which fields were read."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lora_host.errors import ModelError

_log = logging.getLogger("lora_sdk.model")
_warned: set[tuple[str, ...]] = set()

_ABSENT = object()
MAX_POSITIONS = 2**20  # RoPE angles stay in the range of our sine


class Fields:
    """The fields of one JSON object. Each getter checks type and range and raises ModelError."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self._read: set[str] = set()

    def error(self, name: str, found: object, expected: str) -> ModelError:
        """The one-line error of field `name`."""
        return ModelError(f"{self.where}: {name} is {short(found)}, expected {expected}")

    def has(self, name: str) -> bool:
        """Whether `name` is present and not null; marks it as read."""
        self._read.add(name)
        return self.values.get(name) is not None

    def was_read(self, name: str) -> bool:
        """Whether a getter has read `name`."""
        return name in self._read

    def raw(self, names: str | Sequence[str], default: Any = None) -> tuple[str, Any]:
        """(name, value) of the first of `names` that is present and not null."""
        every = (names,) if isinstance(names, str) else tuple(names)
        self._read.update(every)
        for name in every:
            if self.values.get(name) is not None:
                return name, self.values[name]
        return every[0], default

    def integer(
        self, names: str | Sequence[str], default: Any = _ABSENT, low: int = 1, high: int = 2**24
    ) -> int:
        """An integer in low..high; without `default` the field must be present."""
        name, value = self.raw(names, default)
        if value is _ABSENT:
            raise ModelError(f"{self.where}: {name} is missing, expected an integer")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, value, f"an integer in {low}..{high}")
        return value

    def number(
        self, names: str | Sequence[str], default: Any = _ABSENT, low: float = 1e-12
    ) -> float:
        """A number in low..1e12; without `default` the field must be present."""
        name, value = self.raw(names, default)
        if value is _ABSENT:
            raise ModelError(f"{self.where}: {name} is missing, expected a number")
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value <= 1e12:
            raise self.error(name, value, f"a number in {low:g}..1e12")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name, default)[1]
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def choice(self, names: str | Sequence[str], default: str, choices: Mapping[str, Any]) -> Any:
        """The value that `choices` gives for the field's text."""
        name, value = self.raw(names, default)
        if not isinstance(value, str) or value not in choices:
            raise self.error(name, value, "one of " + ", ".join(choices))
        return choices[value]

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids: one, a list, or none; -1 (an old way to say none) is dropped."""
        value = self.raw(name)[1]
        items = value if isinstance(value, list) else [] if value is None else [value]
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or not -1 <= item < 2**31:
                raise self.error(name, value, "a token id, a list of them, or null")
        return tuple(item for item in items if item >= 0)

    def only(self, name: str, allowed: Sequence[object], what: str) -> None:
        """Refuse the field by name unless it is absent, null or one of `allowed`."""
        value = self.raw(name)[1]
        if value is not None and not any(_same(value, item) for item in allowed):
            raise ModelError(f"{self.where}: {name} is {short(value)}: {what}: not supported")

    def note(self, what: str) -> None:
        """Warn of a value, once for each file."""
        if (self.where, what) not in _warned:
            _warned.add((self.where, what))
            _log.warning("%s: %s", self.where, what)

    def warn_unknown(self, harmless: Sequence[str]) -> None:
        """Warn of fields that no getter has read, once for each set of names."""
        known = self._read.union(harmless)
        unknown = tuple(
            sorted(
                name
                for name, value in self.values.items()
                if name not in known and value is not None
            )
        )
        if unknown and unknown not in _warned:
            _warned.add(unknown)
            listed = ", ".join(short(name) for name in unknown[:16])
            more = f" and {len(unknown) - 16} more" if len(unknown) > 16 else ""
            _log.warning("%s: unknown fields are ignored: %s%s", self.where, listed, more)


def _same(value: object, item: object) -> bool:
    """Equality that distinguishes true from 1."""
    return value == item and isinstance(value, bool) == isinstance(item, bool)


def short(value: object) -> str:
    """`value` for a message: printable, at most 80 characters."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= 80 else text[:77] + "..."
