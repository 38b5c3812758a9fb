"""INT8 values by static scales, by row and by head (docs/numbers.md, 6.1, 6.7 and 6.10)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lora_sdk.prefill.exact.functions import divided, half, inverse

HIGHEST = 127.0
INVERSE_127 = float.fromhex("0x1.020408p-7")


def quantized(x: Tensor, factor: Tensor | float) -> Tensor:
    """clamp(rint(x*factor), -127, 127) of FP16 x: int8."""
    product = torch.nan_to_num(x.float() * factor, nan=0.0, posinf=HIGHEST, neginf=-HIGHEST)
    return torch.round(product).clamp(-HIGHEST, HIGHEST).to(torch.int8)


def by_scale(x: Tensor, scale: float) -> Tensor:
    """By a static scale, an FP32 value."""
    return quantized(x, float(np.float32(1) / np.float32(scale)))


def by_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [rows, K] by scales of their own, and these: FP32 [rows, 1]."""
    largest = x.abs().amax(dim=1, keepdim=True).float()
    factor = torch.where(largest == 0, torch.zeros_like(largest), inverse(largest, HIGHEST))
    return quantized(x, factor), largest * INVERSE_127


def by_head(x: Tensor) -> tuple[Tensor, Tensor]:
    """Heads [.., head_dim] by the largest of their values, and the scales: FP16 [..]."""
    scales = half(divided(x.abs().amax(dim=-1).float(), HIGHEST))
    wide = scales.float()
    factor = torch.where(wide == 0, torch.zeros_like(wide), inverse(wide))
    return quantized(x, factor[..., None]), scales


def read_back(values: Tensor, scales: Tensor) -> Tensor:
    """FP16 that attention reads of INT8 heads and their scales."""
    return half(values.float() * scales.float()[..., None])
