"""One safetensors file, memory-mapped. The header is read here, and not by the safetensors
library, because that hides offsets and has no BF16 for NumPy; its rules are checked alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_NAME = 512

# Type name -> NumPy type of the raw bytes. BF16 is the upper half of an FP32.
RAW_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")
}
# Sizes of the other types, so that a buffer which is ignored by name does not make a file wrong.
_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: `start` counts bytes from the file's beginning."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    bytes: int


class Container:
    """A safetensors file. `Container(path)` reads and checks the header only; raises ModelError
    naming the file where it is truncated or corrupt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._size = path.stat().st_size
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if self._size < 8 or length > min(self._size - 8, MAX_HEADER_BYTES):
                    raise self._error(f"header of {length} bytes in a file of {self._size}")
                header = file.read(length)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
        self._data_start = 8 + length
        self.entries = self._parse(header)

    def array(self, entry: Entry) -> NDArray[Any]:
        """The tensor's raw elements in its file's shape, a view of the mapped file."""
        raw: NDArray[Any] = self._map[entry.start : entry.start + entry.bytes]
        return raw.view(RAW_TYPES[entry.kind]).reshape(entry.shape)

    @cached_property
    def _map(self) -> NDArray[np.uint8]:
        if self.path.stat().st_size != self._size:
            raise self._error("changed its size since it was opened")
        return np.memmap(self.path, dtype=np.uint8, mode="r")

    def _parse(self, header: bytes) -> dict[str, Entry]:
        try:
            values = json.loads(header.decode("utf-8"), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise self._error(f"header: {error}") from None
        if not isinstance(values, dict):
            raise self._error("header is not an object")
        values.pop("__metadata__", None)
        entries = {name: self._entry(name, value) for name, value in values.items()}
        end = self._data_start
        for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.bytes)):
            if entry.start != end:
                raise self._error(f"tensor {entry.name!r} begins at {entry.start}, expected {end}")
            end += entry.bytes
        if end != self._size:
            raise self._error(f"file of {self._size} bytes, its header says {end}")
        return entries

    def _entry(self, name: str, value: object) -> Entry:
        if not name.isprintable() or len(name) > MAX_NAME:  # names are quoted in messages
            raise self._error(f"a tensor's name is not printable or longer than {MAX_NAME}")
        if not isinstance(value, dict):
            raise self._error(f"tensor {name!r} is not an object")
        kind, shape = value.get("dtype"), value.get("shape")
        offsets = value.get("data_offsets")
        if not isinstance(kind, str) or kind not in _BYTES:
            raise self._error(f"tensor {name!r} has the unknown dtype {kind!r}")
        if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
            raise self._error(f"tensor {name!r} has a malformed shape or data_offsets")
        start, stop = offsets
        count = stop - start
        if prod(shape) * _BYTES[kind] != count:
            raise self._error(f"tensor {name!r} of shape {shape} {kind} has {count} bytes")
        return Entry(name, kind, tuple(shape), self._data_start + start, count)

    def _error(self, what: str) -> ModelError:
        return ModelError(
            f"{self.path}: truncated or corrupt safetensors file: {what}; fetch it again"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _naturals(value: object) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= 16
        and all(type(item) is int and 0 <= item < 2**48 for item in value)
    )
