"""One safetensors file, memory-mapped. The safetensors library checks the header; the bytes are
mapped here, because with NumPy the library copies whole tensors and has no BF16."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from lora_host.errors import ModelError
from lora_host.regular_file import open_regular
from lora_sdk.gguf.blocks import BlockArray

MAX_NAME = 512
MAX_HEADER = 8 << 20  # bytes: 60,000 tensors, a second to read

# Type name -> NumPy type of the raw bytes. BF16 is the upper half of an FP32.
RAW_TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
INTEGER_TYPES: dict[str, np.dtype[Any]] = {
    "I8": np.dtype("<i1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
FLOAT8 = "F8_E4M3"
QUANTIZED_TYPES = INTEGER_TYPES | {FLOAT8: np.dtype("u1"), "U8": np.dtype("u1")}
"""Types that quantized tensors are stored in."""

_ARRAY_TYPES = RAW_TYPES | QUANTIZED_TYPES

# Bits of the other types: a tensor that is ignored by name still shifts the offsets after it.
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: `start` counts bytes from the file's beginning."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    bytes: int


Elements = NDArray[Any] | BlockArray
"""A tensor's raw elements; of a matrix in blocks FP32, made where they are read."""


class TensorFile(Protocol):
    """A file of tensors."""

    @property
    def path(self) -> Path:
        """Its path."""

    def array(self, entry: Entry) -> Elements:
        """The tensor's elements in its file's shape, a view of the mapped file."""

    def forget(self) -> None:
        """Unmaps the pages that were read; reading maps them again."""


class Container:
    """A safetensors file. `Container(path)` reads and checks the header only; raises ModelError
    naming the file where it is truncated or corrupt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as file:
                self._size = os.fstat(file.fileno()).st_size
                header = int.from_bytes(file.read(8), "little")
            if MAX_HEADER < header <= self._size:
                raise self._error(f"its header has {header} bytes; expected {MAX_HEADER} at most")
            with safe_open(path, "numpy") as file:
                self.entries = self._entries(file, 8 + header)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None
        except SafetensorError as error:
            raise self._error(str(error).split("\n")[0]) from None

    def array(self, entry: Entry) -> NDArray[Any]:
        """The tensor's raw elements in its file's shape, a view of the mapped file."""
        raw: NDArray[Any] = self._map[entry.start : entry.start + entry.bytes]
        return raw.view(_ARRAY_TYPES[entry.kind]).reshape(entry.shape)

    def forget(self) -> None:
        """Unmaps the pages that were read; reading maps them again."""
        if "_file" in self.__dict__:
            self._file.madvise(mmap.MADV_DONTNEED)

    @cached_property
    def _file(self) -> mmap.mmap:
        try:
            with open_regular(self.path) as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:  # no descriptor or no address space is left
            raise self._error(f"cannot be mapped: {error.strerror or error}") from error
        if len(mapped) != self._size:
            raise self._error("changed its size since it was opened")
        return mapped

    @cached_property
    def _map(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._file, np.uint8)

    def _entries(self, file: Any, start: int) -> dict[str, Entry]:
        """The format leaves no gaps, so that sizes in the order of offsets give the offsets."""
        entries = {}
        for name in file.offset_keys():
            if not name.isprintable() or len(name) > MAX_NAME:  # names are quoted in messages
                raise self._error(f"a tensor's name is not printable or longer than {MAX_NAME}")
            view = file.get_slice(name)
            kind, shape = view.get_dtype(), tuple(view.get_shape())
            if kind not in _BITS:
                raise self._error(f"tensor {name!r} has the unknown dtype {kind}")
            size = prod(shape) * _BITS[kind] // 8
            entries[name] = Entry(name, kind, shape, start, size)
            start += size
        if start != self._size:
            raise self._error(f"file of {self._size} bytes, its header says {start}")
        return entries

    def _error(self, what: str) -> ModelError:
        return ModelError(
            f"{self.path}: truncated or corrupt safetensors file: {what}; fetch it again"
        )
