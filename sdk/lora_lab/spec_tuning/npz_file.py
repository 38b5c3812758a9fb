"""Arrays of an npz file that may be anything: sizes are bounded before bytes are read, and headers
are matched, not evaluated. NumPy's own reader does neither."""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lora_host.regular_file import open_regular

MAX_BYTES = 256 << 20
MAX_UNPACKED = 1 << 30
MAX_ARRAYS = 64
MAX_HEADER = 4096

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][iu][1248]|<U[1-9][0-9]{0,7})', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,12}(?:, ?|(?=\))))*)\), \} *\n?"
)


class NpzFault(ValueError):
    """A file that is no such npz."""


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name: integers and text, C order. NpzFault names what is wrong; OSError where
    the file cannot be read."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise NpzFault(f"larger than {MAX_BYTES} bytes")
        try:
            return _arrays(file)
        except (
            zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError,
            RuntimeError, ValueError,
        ) as error:  # fmt: skip
            # RuntimeError: encrypted; NotImplementedError: another compression.
            raise NpzFault(f"{error}") from None


def _arrays(file: BinaryIO) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(file) as packed:
        entries = packed.infolist()
        whole = sum(entry.file_size for entry in entries)
        if whole >= MAX_UNPACKED or len(entries) > MAX_ARRAYS:
            raise NpzFault(f"{len(entries)} arrays of {whole} bytes unpacked")
        arrays: dict[str, NDArray[Any]] = {}
        for entry in entries:
            with packed.open(entry) as stream:
                data = stream.read(entry.file_size)
            arrays[entry.filename.removesuffix(".npy")] = _array(entry.filename, data)
        return arrays


def _array(name: str, data: bytes) -> NDArray[Any]:
    start = len(_MAGIC) + 2
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    if not data.startswith(_MAGIC) or end > start + MAX_HEADER:
        raise NpzFault(f"{name[:40]!r} is no array")
    found = _HEADER.fullmatch(data, start, end)
    if found is None:
        raise NpzFault(f"{name[:40]!r}: header {data[start:end][:80]!r}")
    dtype = np.dtype(found[1].decode())
    shape = tuple(int(size) for size in found[2].replace(b" ", b"").split(b",") if size)
    if prod(shape) * dtype.itemsize != len(data) - end:
        raise NpzFault(f"{name[:40]!r}: {shape} of {dtype} in {len(data) - end} bytes")
    return np.frombuffer(data, dtype, offset=end).reshape(shape)
