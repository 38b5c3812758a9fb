"""The arguments of a kernel as the CUDA driver reads them."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol


class Addressed(Protocol):
    """A tensor, or what else has an address."""

    def data_ptr(self) -> int: ...


Argument = Addressed | float | None
"""An address or None for null, an int of 32 bits, or a float, which is an FP32 number."""


def packed(given: tuple[Argument, ...]) -> Any:
    """The addresses of a kernel's arguments, which live as long as what this returns."""
    values = [_value(one) for one in given]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    pointers.values = values  # type: ignore[attr-defined]
    return pointers


def _value(one: Argument) -> Any:
    if isinstance(one, int):
        return ctypes.c_int(one)
    if isinstance(one, float):
        return ctypes.c_float(one)
    return ctypes.c_void_p(None if one is None else one.data_ptr())
