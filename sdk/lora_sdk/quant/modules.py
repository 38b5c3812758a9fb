"""One module's weights in the file's format, and their dequantized values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.model.packed_weights import SHIFT, pack_nibbles
from lora_sdk.quant.gptq import int4_compensated, int8_compensated
from lora_sdk.quant.layer import F32
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.rounding import int4_weights, int8_weights

Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Rounded:
    """Weights [N, K] as integers. `per_channel` and `symmetric` select the file's format."""

    columns: Int8Columns | Int4Columns
    per_channel: bool = False
    symmetric: bool = False

    def weights(self) -> F32:
        """The dequantized values: FP32 [N, K]."""
        return self.columns.dense()

    def tensors(self, module: str) -> Tensors:
        """The tensors in compressed-tensors' format: int-quantized or pack-quantized."""
        if isinstance(self.columns, Int8Columns):
            scales = self.columns.scales
            return {
                f"{module}.weight": self.columns.values,
                f"{module}.weight_scale": scales[:, None] if self.per_channel else scales[:1],
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
        if compensated:
            return Rounded(int8_compensated(w, False, hessian))
        return Rounded(int8_weights(w, False, importance))
    group, symmetric = recipe.group, recipe.symmetric
    if compensated:
        return Rounded(int4_compensated(w, group, symmetric, hessian), symmetric=symmetric)
    return Rounded(int4_weights(w, group, symmetric, importance), symmetric=symmetric)


def round_head(w: F32, importance: F32) -> Rounded:
    """lm_head [V, K] in 8 bits, one scale per output."""
    return Rounded(int8_weights(w, True, importance), per_channel=True)


def half(tensor: str, x: F32) -> NDArray[np.float16]:
    """A vector in FP16. ModelError if smoothing has moved it out of range."""
    with np.errstate(over="ignore"):
        found = x.astype(np.float16)
    if not np.isfinite(found).all():
        raise ModelError(
            f"{tensor}: smoothing makes a value of {np.abs(x).max():g}, out of FP16's range, below"
            " 65520; use --no-smooth"
        )
    return found
