"""The header of a GGUF file, read with every size checked before it is used. (The `gguf` package
reads the same, but believes counts and lengths, so it is only the tests' truth.)"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.regular_file import open_regular
from lora_host.vocabulary import texts_end
from lora_sdk.gguf.blocks import TensorType, tensor_type
from lora_sdk.gguf.values import SCALARS, STRING, Array, Metadata, Value, shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ARRAY = 9
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 512
MAX_TEXT = 16 << 20
MAX_TEXTS = 1 << 22
"""Texts in all arrays together: a vocabulary has some 10^5."""
MAX_DIMENSIONS = 4
MAX_SIDE = 1 << 31
MAX_ALIGNMENT = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """`shape` as NumPy counts, rows first; `start` and `bytes` in the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    bytes: int


def is_gguf(path: Path) -> bool:
    """Whether `path` is a file that says that it is GGUF, by its first bytes or its name."""
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix.lower() == ".gguf"
    except OSError:
        return False


class GgufFile:
    """An opened file: `metadata` and `tensors` by name, in the file's order. ModelError: it cannot
    be read, or says something that cannot be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as file:
                self.bytes = os.fstat(file.fileno()).st_size
                self._check_start(file.read(8))
                self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
        if len(self._file) != self.bytes:
            raise self.error("changed its size while it was opened")
        self._at = 8
        self._texts = 0
        tensors, keys = self._count(MAX_TENSORS, "tensors"), self._count(MAX_KEYS, "keys")
        self.metadata = Metadata(path, self._metadata(keys))
        self.tensors = self._tensors(tensors)

    def error(self, what: str) -> ModelError:
        """The error of a file that is damaged."""
        return ModelError(f"{self.path}: truncated or corrupt GGUF file: {what}; fetch it again")

    def raw(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The tensor's bytes, a view of the mapped file."""
        return np.frombuffer(self._file, np.uint8, tensor.bytes, tensor.start)

    def forget(self) -> None:
        """Unmaps the pages that were read; reading maps them again."""
        self._file.madvise(mmap.MADV_DONTNEED)

    def _check_start(self, start: bytes) -> None:
        if len(start) < 8 or start[:4] != MAGIC:
            raise self.error(f"begins with {start[:4]!r}, expected {MAGIC!r}")
        version = int.from_bytes(start[4:], "little")
        if version in VERSIONS:
            return
        if int.from_bytes(start[4:], "big") in VERSIONS:
            raise ModelError(f"{self.path}: a big-endian GGUF file; convert it to little-endian")
        raise ModelError(
            f"{self.path}: GGUF version {version}, expected {' or '.join(map(str, VERSIONS))}; "
            "convert the model again"
        )

    def _metadata(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self._name("a key")
            if key in found:
                raise self.error(f"key {key} is there twice")
            found[key] = self._value(key, self._integer("<I"))
        return found

    def _tensors(self, count: int) -> dict[str, Tensor]:
        described = [self._described() for _ in range(count)]
        alignment = self.metadata.integer("general.alignment", 32, 1, MAX_ALIGNMENT)
        if alignment & (alignment - 1):
            raise self.metadata.error("general.alignment", alignment, "a power of two")
        data = -(-self._at // alignment) * alignment
        found: dict[str, Tensor] = {}
        for name, kind, shape, offset in described:
            size = prod(shape) // kind.elements * kind.bytes
            if name in found:
                raise self.error(f"tensor {name} is there twice")
            if offset % alignment or data + offset + size > self.bytes:
                raise self.error(
                    f"tensor {name} has {size} bytes at offset {offset}; expected a multiple of "
                    f"{alignment}, and all of it in the {max(0, self.bytes - data)} bytes of data"
                )
            found[name] = Tensor(name, kind, shape, data + offset, size)
        self._check_apart(found)
        return found

    def _described(self) -> tuple[str, TensorType, tuple[int, ...], int]:
        name = self._name("a tensor's name")
        count = self._integer("<I")
        if not 1 <= count <= MAX_DIMENSIONS:
            raise self.error(f"tensor {name} has {count} dimensions, expected 1..{MAX_DIMENSIONS}")
        sides = [self._integer("<Q") for _ in range(count)]
        kind = tensor_type(self._integer("<I"), f"{self.path}: tensor {name}")
        if not all(1 <= side < MAX_SIDE for side in sides) or prod(sides) > 1 << 48:
            raise self.error(f"tensor {name} has the sides {sides}")
        if sides[0] % kind.elements:
            raise self.error(
                f"tensor {name}: rows of {sides[0]} are no multiple of a block of {kind.name}, "
                f"{kind.elements}"
            )
        return name, kind, tuple(reversed(sides)), self._integer("<Q")

    def _check_apart(self, tensors: dict[str, Tensor]) -> None:
        end = 0
        for tensor in sorted(tensors.values(), key=lambda one: one.start):
            if tensor.start < end:
                raise self.error(f"tensor {tensor.name} overlaps another")
            end = tensor.start + tensor.bytes

    def _value(self, key: str, kind: int) -> Value:
        if kind == STRING:
            return self._text(f"key {key}", MAX_TEXT)
        if kind == ARRAY:
            return self._array(key)
        if kind not in SCALARS:
            raise self.error(f"key {key} has the unknown type {kind}")
        value = SCALARS[kind]
        (found,) = struct.unpack_from(value.format, self._file, self._take(value.bytes))
        if value.format == "<?" and self._file[self._at - 1] > 1:
            raise self.error(f"key {key} is neither true nor false")
        return found  # type: ignore[no-any-return]

    def _array(self, key: str) -> Array:
        kind, count = self._integer("<I"), self._integer("<Q")
        if kind == STRING:
            self._texts += count
            if self._texts > MAX_TEXTS or count > (self.bytes - self._at) // 8:
                raise self.error(f"key {key} has {count} texts")
            start = self._at
            self._skip_texts(count)
            return Array(self._file, kind, count, start, self._at)
        if kind not in SCALARS:
            raise self.error(f"key {key} is an array of type {kind}; expected numbers or texts")
        if count > self.bytes:
            raise self.error(f"key {key} has {count} elements")
        start = self._take(count * SCALARS[kind].bytes)
        return Array(self._file, kind, count, start, self._at)

    def _skip_texts(self, count: int) -> None:
        """Past texts, which are there."""
        end = texts_end(self._file, self._at, count)
        if end is not None:
            self._at = end
            return
        for _ in range(count):  # names the text that is cut
            self._take(self._integer("<Q"))

    def _name(self, what: str) -> str:
        name = self._text(what, MAX_NAME)
        if not name.isprintable() or not name:  # names are quoted in messages
            raise self.error(f"{what} is empty or not printable")
        return name

    def _text(self, what: str, limit: int) -> str:
        size = self._integer("<Q")
        if size > limit:
            raise self.error(f"{what} has {size} bytes, expected at most {limit}")
        start = self._take(size)
        try:
            return self._file[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8") from None

    def _count(self, limit: int, what: str) -> int:
        count = self._integer("<Q")
        if count > limit:
            raise self.error(f"{shown(count)} {what}, expected at most {limit}")
        return count

    def _integer(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self._file, self._take(struct.calcsize(form)))
        return int(found)

    def _take(self, size: int) -> int:
        """The offset of the next `size` bytes, which are there."""
        start = self._at
        if size > self.bytes - start:
            raise self.error(f"{shown(size)} bytes at {start} of {self.bytes}")
        self._at = start + size
        return start
