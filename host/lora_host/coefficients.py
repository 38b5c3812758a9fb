"""The tables of csrc/include/lora/coefficients.h as NumPy arrays: one definition for C and Python
(docs/numbers.md, 4.6).

They are read from the compiled extension. In a source tree without one the header is parsed.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[Any]  # float32 or float64

_HEADER = Path(__file__).resolve().parents[2] / "csrc/include/lora/coefficients.h"
_DEFINITION = re.compile(r"static const (float|double) lora_(\w+)(?:\[(\d+)\])? = \{?([^;{}]*)\}?;")
_DTYPES: dict[str, Any] = {"float": np.float32, "double": np.float64}


@cache
def coefficients(name: str) -> Table:
    """The table `name` (without "lora_"), float32 or float64, shape [count], read-only.

    Raises KeyError if there is no such table.
    """
    try:
        from lora_host import _lora  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return parse_header(_HEADER.read_text())[name]
    return _from_extension(_lora.ffi, _lora.lib, name)


def _from_extension(ffi: Any, lib: Any, name: str) -> Table:
    found = lib.lora_coefficient_find(name.encode())
    if not found:
        raise KeyError(name)
    kind = {4: "float", 8: "double"}[found.element_bytes]
    data = ffi.buffer(found.values, found.count * found.element_bytes)
    values: Table = np.frombuffer(data, _DTYPES[kind]).copy()
    values.flags.writeable = False
    return values


def parse_header(text: str) -> dict[str, Table]:
    """All tables in the header's text, by name."""
    tables = {}
    for kind, name, count, body in _DEFINITION.findall(text):
        numbers = [float.fromhex(part.strip().rstrip("f")) for part in body.split(",")]
        if len(numbers) != int(count or 1):
            raise ValueError(f"coefficients.h: {name} has {len(numbers)} values, not {count}")
        values = np.array(numbers, _DTYPES[kind])
        values.flags.writeable = False
        tables[name] = values
    return tables
