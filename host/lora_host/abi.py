"""Constants and structures of abi.h, as compiled: `abi.BLOCK_K` is LORA_BLOCK_K, `abi.dtype("row")`
the NumPy structured type of `struct lora_row`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from . import native

_SCALARS = {
    "uint8_t": "u1",
    "uint16_t": "<u2",
    "uint32_t": "<u4",
    "uint64_t": "<u8",
    "int8_t": "i1",
    "int16_t": "<i2",
    "int32_t": "<i4",
    "int64_t": "<i8",
    "char": "S1",
    "float": "<f4",
    "double": "<f8",
}


def __getattr__(name: str) -> int:
    """The constant LORA_<name>. AttributeError if abi.h has none."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        value = getattr(native.lib(), f"LORA_{name}")
    except AttributeError:
        raise AttributeError(f"abi.h has no LORA_{name}") from None
    if not isinstance(value, int):
        raise AttributeError(f"LORA_{name} is not a number")
    globals()[name] = value  # later look-ups skip this function
    return value


def names(prefix: str) -> dict[int, str]:
    """{value: "LORA_..."} of the constants whose name begins with LORA_<prefix>."""
    library = native.lib()
    start = f"LORA_{prefix}"
    found = {name: getattr(library, name) for name in dir(library) if name.startswith(start)}
    return {value: name for name, value in found.items() if isinstance(value, int)}


@cache
def dtype(name: str) -> np.dtype[np.void]:
    """NumPy type of `struct lora_<name>`, with the compiled offsets and size. Pointers are 8-byte
    unsigned numbers. KeyError if abi.h has no such structure."""
    ffi = native.ffi()
    try:
        kind = ffi.typeof(f"struct lora_{name}")
    except ffi.error as cause:
        raise KeyError(f"abi.h has no struct lora_{name}") from cause
    return _structure(kind)


def _structure(kind: Any) -> np.dtype[np.void]:
    names, formats, offsets = [], [], []
    for field_name, field in kind.fields:
        names.append(field_name)
        formats.append(_element(field.type))
        offsets.append(field.offset)
    size = native.ffi().sizeof(kind)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _element(kind: Any) -> Any:
    if kind.kind == "array":
        inner = _element(kind.item)
        return f"S{kind.length}" if inner == "S1" else (inner, (kind.length,))
    if kind.kind == "struct":
        return _structure(kind)
    if kind.kind in ("pointer", "function"):
        return "<u8"
    return _SCALARS[kind.cname]
