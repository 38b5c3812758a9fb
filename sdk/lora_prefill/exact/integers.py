"""INT8 values by static scales, by row and by head (docs/numbers.md, 6.1, 6.7 and 6.10)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lora_prefill.exact.functions import divided, half, inverse

HIGHEST = 127.0
INVERSE_127 = float.fromhex("0x1.020408p-7")


def quantized(x: Tensor, factor: Tensor | float) -> Tensor:
    """clamp(rint(x*factor), -127, 127) of FP16 x: int8."""
    product = torch.nan_to_num(x.float() * factor, nan=0.0, posinf=HIGHEST, neginf=-HIGHEST)
    return torch.round(product).clamp(-HIGHEST, HIGHEST).to(torch.int8)


def inverse_scale(scale: float) -> float:
    """The factor of a static scale, an FP32 value."""
    return float(np.float32(1) / np.float32(scale))


def row_scales(x: Tensor) -> tuple[Tensor, Tensor]:
    """Factors and scales of rows [rows, K] by themselves: FP32 [rows, 1]."""
    largest = x.abs().amax(dim=1, keepdim=True).float()
    factor = torch.where(largest == 0, torch.zeros_like(largest), inverse(largest, HIGHEST))
    return factor, largest * INVERSE_127


class Heads(NamedTuple):
    """INT8 [heads, rows, head_dim], scales FP16 [heads, rows], and FP16 that attention reads."""

    values: Tensor
    scales: Tensor
    back: Tensor


def by_head(x: Tensor) -> Heads:
    """FP16 [rows, heads, head_dim], each head by the largest of its values."""
    x = x.transpose(0, 1)
    scales = half(divided(x.abs().amax(dim=-1).float(), HIGHEST))
    wide = scales.float()[..., None]
    factor = torch.where(wide == 0, torch.zeros_like(wide), inverse(wide))
    values = quantized(x, factor)
    return Heads(values, scales, half(values.float() * wide))
