"""Rotary tables, made by the C library: what lora_host.numerics computes, in the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import native


def rotary_rows(
    inverse: NDArray[np.float32], half: int, positions: int, factor: float
) -> NDArray[np.float32]:
    """Table [positions, 2, half], half at least len(inverse): cosines and sines of position *
    inverse, times `factor`, then 1 and 0 (docs/numbers.md, 3.6). Angles have to be in the range of
    4.5."""
    if not 0 <= len(inverse) <= half or positions < 0:
        raise ValueError(f"{len(inverse)} frequencies for {half} pairs, {positions} positions")
    table = np.empty((positions, 2, half), np.float32)
    ffi, frequencies = native.ffi(), np.ascontiguousarray(inverse, np.float32)
    native.lib().lora_rope_table(
        ffi.from_buffer("float[]", frequencies),
        len(frequencies),
        half,
        positions,
        factor,
        ffi.from_buffer("float[]", table, require_writable=True),
    )
    return table
