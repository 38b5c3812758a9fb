"""K and V of another program in the types of the boards' KV cache (docs/numbers.md, 6.1, 6.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host.errors import ModelError
from lora_sdk.kv.kv_arrays import KvArrays, static_scales
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import AttentionScales

HIGHEST = 127


def stored(
    kind: KvKind,
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    scales: Sequence[AttentionScales],
) -> KvArrays:
    """`k` and `v`, FP32 [layers, KV heads, positions, head_dim], rounded to FP16 and stored as
    `kind`. `scales`: of these layers, for static INT8. ModelError: FP16 cannot hold a value."""
    half = []
    for name, array in (("K", k), ("V", v)):
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float16)
        if not np.isfinite(rounded).all():
            raise ModelError(f"{name} of a prompt holds values that FP16 cannot; expected finite")
        half.append(rounded)
    if kind == "fp16":
        return KvArrays(kind, half[0], half[1])
    if kind == "int8":
        each = [
            _rounded(array, np.float32(1) / steps[:, None, None, None])
            for array, steps in zip(half, static_scales(scales), strict=True)
        ]
        return KvArrays(kind, each[0], each[1])
    (k8, k_scales), (v8, v_scales) = map(_by_head, half)
    return KvArrays(kind, k8, v8, k_scales, v_scales)


def _by_head(
    array: npt.NDArray[np.float16],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    largest = np.abs(array).max(axis=3).astype(np.float32)
    steps = (largest / np.float32(HIGHEST)).astype(np.float16)
    wide = steps.astype(np.float32)
    inverse = np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide != 0)
    return _rounded(array, inverse[..., None]), steps


def _rounded(array: npt.NDArray[np.float16], inverse: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    product = array.astype(np.float32) * inverse
    values: npt.NDArray[np.int8] = np.clip(np.rint(product), -HIGHEST, HIGHEST).astype(np.int8)
    return values
