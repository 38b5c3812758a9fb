"""Raw tensor elements -> FP16, nearest even, with the limits of docs/numbers.md, 3.1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError

CHUNK = 1 << 20  # elements converted at once: bounds the FP32 copy of a large tensor
_EXPONENT = np.uint16(0x7C00)


def to_half(raw: NDArray[Any], kind: str, tensor: str) -> NDArray[np.float16]:
    """`raw` [..] of type `kind` ("F32", "F16", "BF16") as FP16 of the same shape, C order.

    Raises ModelError naming `tensor`: NaN or infinity, or |w| >= 65520, which rounds to infinity.
    """
    out = np.empty(raw.shape, np.float16)
    if not raw.size:
        return out
    flat_rows = raw.reshape(-1) if raw.ndim == 1 else raw
    step = max(1, CHUNK // max(1, raw.size // raw.shape[0]))
    for start in range(0, raw.shape[0], step):
        part = flat_rows[start : start + step]
        with np.errstate(over="ignore"):
            half = widen(part, kind).astype(np.float16)
        if np.any((half.view(np.uint16) & _EXPONENT) == _EXPONENT):
            raise _error(widen(part, kind), tensor)
        out[start : start + step] = half
    return out


def to_single(raw: NDArray[Any], kind: str, tensor: str) -> NDArray[np.float32]:
    """`raw` as FP32, which is exact. ModelError naming `tensor`: NaN or infinity."""
    found = widen(raw, kind).astype(np.float32)
    if not np.isfinite(found).all():
        raise _error(found, tensor)
    return found


def widen(raw: NDArray[Any], kind: str) -> NDArray[np.floating[Any]]:
    """Elements as a float type that NumPy knows; BF16 widens exactly to FP32."""
    if kind != "BF16":
        return raw
    wide: NDArray[np.uint32] = raw.astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def _error(values: NDArray[Any], tensor: str) -> ModelError:
    flat = values.reshape(-1).astype(np.float64)
    bad = flat[~np.isfinite(flat)]
    if bad.size:
        return ModelError(f"{tensor}: {bad.size} weights are {bad[0]}, expected finite numbers")
    worst = flat[np.abs(flat).argmax()]
    return ModelError(
        f"{tensor}: weight {worst:g} is out of FP16's range, expected magnitudes below 65520"
    )
