"""Functions of the contract (docs/numbers.md, 1 and 4) in plain torch operations on FP32.

Three of torch's own are no good: `sqrt` of FP32 is misrounded on CPU, `1/x` is a reciprocal times
1, and a division by a Python number is a multiplication by its reciprocal on CUDA."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from lora_host.coefficients import coefficients

INFINITY = float("inf")


@cache
def table(name: str, device: torch.device) -> Tensor:
    """A table of coefficients on a device."""
    return torch.from_numpy(coefficients(name).copy()).to(device)


@cache
def number(value: float, device: torch.device) -> Tensor:
    """An FP32 number on a device, rounded once."""
    return torch.tensor(float(np.float32(value)), dtype=torch.float32, device=device)


def constant(name: str) -> float:
    """A coefficient; its FP32 value is exact in FP64."""
    return float(coefficients(name)[0])


def half(x: Tensor) -> Tensor:
    """FP16(x)."""
    return x.to(torch.float16)


def divided(x: Tensor, y: Tensor | float) -> Tensor:
    """x/y, rounded once."""
    return torch.div(x, number(y, x.device) if isinstance(y, float) else y)


def inverse(x: Tensor, above: float = 1.0) -> Tensor:
    """above/x, rounded once."""
    return torch.div(torch.full_like(x, above), x)


def root(x: Tensor) -> Tensor:
    """sqrt(x), rounded once: FP64 has more than twice FP32's digits."""
    return torch.sqrt(x.double()).float()


def largest(x: Tensor) -> Tensor:
    """The largest |x| of each row [rows, N]; NaN where a row has one."""
    return torch.linalg.vector_norm(x, INFINITY, dim=1)


def bf16(x: Tensor) -> Tensor:
    """BF16(x) as FP32."""
    return x.to(torch.bfloat16).float()


def _power_of_two(n: Tensor) -> Tensor:
    return ((n + 127) << 23).view(torch.float32)


def exp(x: Tensor) -> Tensor:
    """4.1."""
    low, high = constant("exp_min"), constant("exp_max")
    safe = torch.where((x >= low) & (x <= high), x, torch.zeros_like(x))
    n = torch.round(safe * constant("log2e"))  # ties to even
    r = (safe - n * constant("ln2_hi")) - n * constant("ln2_lo")
    p = torch.full_like(r, float(coefficients("exp_c")[0]))
    for c in coefficients("exp_c")[1:]:
        p = p * r
        p = p + float(c)
    whole = n.to(torch.int32)
    part = whole >> 1
    y = (p * _power_of_two(part)) * _power_of_two(whole - part)
    y = torch.where(x < low, torch.zeros_like(x), y)
    y = torch.where(x > high, torch.full_like(x, INFINITY), y)
    return torch.where(torch.isnan(x), x, y)


def silu(g: Tensor) -> Tensor:
    """3.10."""
    return divided(g, exp(-g) + 1.0)


def gelu(x: Tensor, kind: str) -> Tensor:
    """4.2, `kind` "tanh" or "erf"."""
    inside = (x >= -8.0) & (x < 8.0)
    safe = torch.where(inside, x, torch.zeros_like(x))
    index = torch.floor(safe * 64.0).to(torch.int64) + 512
    y = table(f"gelu_{kind}_a", x.device)[index] * safe
    y = y + table(f"gelu_{kind}_b", x.device)[index]
    return torch.where(inside, y, torch.where(x < -8.0, torch.zeros_like(x), x))


def relu(x: Tensor) -> Tensor:
    """3.10."""
    return torch.where((x > 0) | torch.isnan(x), x, torch.zeros_like(x))


def tanh(x: Tensor) -> Tensor:
    """4.7."""
    size = x.abs()
    far = 1.0 - divided(torch.full_like(size, 2.0), exp(size + size) + 1.0)
    z = x * x
    p = torch.full_like(z, float(coefficients("tanh_c")[0]))
    for c in coefficients("tanh_c")[1:]:
        p = p * z
        p = p + float(c)
    near = (x * z) * p
    near = x + near
    return torch.where(size < 0.625, near, torch.copysign(far, x))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """3.14."""
    bound = np.float32(cap)
    return tanh(x * float(np.float32(1) / bound)) * float(bound)
