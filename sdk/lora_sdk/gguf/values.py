"""Metadata of a GGUF file, with types and ranges checked when they are read."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.vocabulary import texts_of

STRING = 8


@dataclass(frozen=True)
class Scalar:
    """A number's type: of `struct` and of NumPy."""

    format: str
    dtype: str
    bytes: int


SCALARS: Mapping[int, Scalar] = {
    0: Scalar("<B", "<u1", 1),
    1: Scalar("<b", "<i1", 1),
    2: Scalar("<H", "<u2", 2),
    3: Scalar("<h", "<i2", 2),
    4: Scalar("<I", "<u4", 4),
    5: Scalar("<i", "<i4", 4),
    6: Scalar("<f", "<f4", 4),
    7: Scalar("<?", "?", 1),
    10: Scalar("<Q", "<u8", 8),
    11: Scalar("<q", "<i8", 8),
    12: Scalar("<d", "<f8", 8),
}


@dataclass(frozen=True, eq=False)
class Array:
    """An array whose bounds in the file were checked; its values are read when they are asked
    for."""

    _file: mmap.mmap
    kind: int
    count: int
    _start: int
    _end: int

    def numbers(self) -> NDArray[Any]:
        """A copy of the numbers."""
        kind = SCALARS[self.kind]
        viewed = np.frombuffer(self._file, kind.dtype, self.count, self._start)
        found: NDArray[Any] = viewed.copy()
        return found

    def texts(self) -> list[str]:
        """The texts. UnicodeDecodeError: they are no UTF-8."""
        return texts_of(self._file, self._start, self._end, self.count)

    def raw(self) -> bytes:
        """A copy of the bytes in the file."""
        return self._file[self._start : self._end]


Value = int | float | bool | str | Array


class Metadata:
    """Typed reading. Every getter raises ModelError that names the file and the key."""

    def __init__(self, path: Path, values: Mapping[str, Value]) -> None:
        self.values = values
        self._path = path

    def error(self, key: str, found: object, expected: str) -> ModelError:
        """The one-line error of `key`."""
        return ModelError(f"{self._path}: {key} is {shown(found)}, expected {expected}")

    def missing(self, key: str, expected: str) -> ModelError:
        """The error of a key that must be there."""
        return ModelError(f"{self._path}: {key} is missing, expected {expected}")

    def integer(self, key: str, default: int | None = None, low: int = 0, high: int = 2**24) -> int:
        """An integer in low..high; without `default` the key must be there."""
        value = self.values.get(key, default)
        if value is None:
            raise self.missing(key, "an integer")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, f"an integer in {low}..{high}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number. One of 32 bits is the shortest decimal number that rounds to it, as
        config.json has it."""
        value = self.values.get(key, default)
        if value is None:
            raise self.missing(key, "a number")
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not isfinite(value):  # type: ignore[arg-type]
            raise self.error(key, value, "a finite number")
        if isinstance(value, float) and float(np.float32(value)) == value:
            return float(str(np.float32(value)))
        return float(value)  # type: ignore[arg-type]

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without `default` the key must be there."""
        value = self.values.get(key, default)
        if value is None:
            raise self.missing(key, "a text")
        if not isinstance(value, str):
            raise self.error(key, value, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """An array of texts."""
        value = self._texts(key)
        try:
            return value.texts()
        except UnicodeDecodeError:
            raise self.error(key, value, "texts in UTF-8") from None

    def raw_texts(self, key: str) -> bytes:
        """An array of texts as it is in the file."""
        return self._texts(key).raw()

    def _texts(self, key: str) -> Array:
        value = self.values.get(key)
        if value is None:
            raise self.missing(key, "an array of texts")
        if not isinstance(value, Array) or value.kind != STRING:
            raise self.error(key, value, "an array of texts")
        return value

    def numbers(self, key: str, count: int) -> NDArray[Any]:
        """An array of `count` numbers."""
        value = self.values.get(key)
        if value is None:
            raise self.missing(key, f"an array of {count} numbers")
        if not isinstance(value, Array) or value.kind == STRING or value.count != count:
            raise self.error(key, value, f"an array of {count} numbers")
        return value.numbers()


def shown(value: object) -> str:
    """`value` for a message: printable, at most 80 characters."""
    if isinstance(value, Array):
        return f"an array of {value.count}"
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= 80 else text[:77] + "..."
