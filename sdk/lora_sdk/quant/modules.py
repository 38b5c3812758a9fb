"""One module's weights in the file's format, and their dequantized values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.model.packed_weights import SHIFT, pack_nibbles
from lora_sdk.quant.gptq import int4_compensated, int8_compensated
from lora_sdk.quant.layer import F32
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.rounding import affine, half_scale, int4_weights, int8_weights

Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Rounded:
    """Weights [N, K] as integers. `symmetric`: 4-bit groups without zero points in the file."""

    columns: Int8Columns | Int4Columns
    symmetric: bool = False

    def weights(self) -> F32:
        """The dequantized values: FP32 [N, K]."""
        return self.columns.dense()

    def take(self, chosen: NDArray[np.intp]) -> Rounded:
        """Some of the outputs, in this order."""
        return replace(self, columns=self.columns.take(chosen))

    @staticmethod
    def join(parts: Sequence[Rounded]) -> Rounded:
        """The outputs of several, one after the other."""
        names = [field.name for field in fields(parts[0].columns)]
        columns: Any = {
            name: np.concatenate([getattr(part.columns, name) for part in parts]) for name in names
        }
        return replace(parts[0], columns=replace(parts[0].columns, **columns))

    def tensors(self, module: str) -> Tensors:
        """The tensors in compressed-tensors' format: int-quantized or pack-quantized."""
        if isinstance(self.columns, Int8Columns):
            return {
                f"{module}.weight": self.columns.values,
                f"{module}.weight_scale": self.columns.scales[:, None],
            }
        found: Tensors = {
            f"{module}.weight_packed": pack_nibbles(self.columns.values),
            f"{module}.weight_scale": self.columns.scales,
            f"{module}.weight_shape": np.array(self.columns.values.shape, np.int64),
        }
        if not self.symmetric:
            packed = pack_nibbles(np.ascontiguousarray(self.columns.zeros.T))
            found[f"{module}.weight_zero_point"] = np.ascontiguousarray(packed.T)
        else:
            assert (self.columns.zeros == SHIFT).all()
        return found


def round_weights(w: F32, recipe: Recipe, hessian: F32) -> Rounded:
    """w [N, K] of a layer, rounded by `recipe`. `hessian` [K, K]: the mean of x x^T."""
    importance = np.diagonal(hessian)
    compensated = recipe.method == "gptq"
    if not recipe.four_bit:
        return Rounded(int8_compensated(w, hessian) if compensated else int8_weights(w, importance))
    group, symmetric = recipe.group, recipe.symmetric
    if compensated:
        return Rounded(int4_compensated(w, group, symmetric, hessian), symmetric)
    return Rounded(int4_weights(w, group, symmetric, importance), symmetric)


def rounded_plainly(w: F32, recipe: Recipe) -> F32:
    """w [K, N] rounded to nearest by `recipe`, without a search for scales, as FP32."""
    if not recipe.four_bit:
        step = half_scale(np.abs(w).max(axis=0) / np.float32(127))
        eight: F32 = np.rint(w / step) * step
        return eight
    k, n = w.shape
    parts = w.reshape(-1, recipe.group, n)
    low, high = np.minimum(parts.min(axis=1), 0), np.maximum(parts.max(axis=1), 0)
    scale, zero = affine(low, high, recipe.symmetric)
    values = np.clip(np.rint(parts / scale[:, None]) + zero[:, None], 0, 15) - zero[:, None]
    rounded: F32 = (values * scale[:, None]).reshape(k, n)
    return rounded


def half(tensor: str, x: F32) -> NDArray[np.float16]:
    """A vector in FP16. ModelError if smoothing has moved it out of range."""
    with np.errstate(over="ignore"):
        found = x.astype(np.float16)
    if not np.isfinite(found).all():
        raise ModelError(
            f"{tensor}: scaling makes a value of {np.abs(x).max():g}, out of FP16's range, below"
            " 65520; use --no-smooth"
        )
    return found
