"""What exact prefill asks of a device beyond operations on single values: sums in the contract's
order, and what is made of them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lora_prefill.exact import attention, functions, integers, norms, sums
from lora_prefill.exact.attention import Scores
from lora_prefill.exact.integers import Heads
from lora_prefill.exact.matrices import Product, Products, TorchProducts


class Kernels(Products, Protocol):
    """All of them."""

    def rounded(self, product: Product, bias: Tensor | None) -> Tensor:
        """FP16(v + bias) (3.3), without a bias FP16(v): FP16 [rows, N]."""

    def rms_norm(self, x: Tensor, gamma: Tensor | None, eps: float, above: float) -> Tensor:
        """3.5 of FP16 x [rows, d], `above` the numerator of r: FP16."""

    def rotated(self, x: Tensor, angles: Tensor, columns: int) -> Tensor:
        """FP16 x [rows, N] with its first columns, whole heads, rotated (3.7) by the FP32 cosines
        and sines [rows, 2, head_dim/2]."""

    def by_head(self, x: Tensor) -> Heads:
        """6.7 of FP16 x [rows, heads, head_dim]."""

    def squares(self, x: Tensor) -> Tensor:
        """segsum of squares of FP16 x [.., K]: FP32 [..]."""

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """T and Q of LayerNorm (3.4) of FP16 x [rows, K]: FP32 [rows]."""

    def gated_silu(self, x: Tensor) -> Tensor:
        """silu(g)*u (3.10) of g and u side by side, FP16 [rows, 2*N]: FP16 [rows, N]."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        """See attention.attend."""

    def attend_int8(self, q: Tensor, k: Tensor, v: Tensor, how: Scores, v_scale: float) -> Tensor:
        """See attention.attend_int8."""


class TorchKernels(TorchProducts):
    """The reference: plain torch operations."""

    def rounded(self, product: Product, bias: Tensor | None) -> Tensor:
        """See Kernels."""
        v = product.scaled()
        return functions.half(v if bias is None else v + bias)

    def rms_norm(self, x: Tensor, gamma: Tensor | None, eps: float, above: float) -> Tensor:
        """See Kernels."""
        return functions.half(norms.rms_norm(x, sums.squares(x), x.shape[1], gamma, eps, above))

    def rotated(self, x: Tensor, angles: Tensor, columns: int) -> Tensor:
        """See Kernels."""
        heads = x[:, :columns].float().unflatten(1, (-1, 2 * angles.shape[2]))
        a, b = heads.chunk(2, dim=2)
        cos, sin = angles[:, None].unbind(dim=2)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=2)
        return torch.cat([functions.half(turned).flatten(1), x[:, columns:]], dim=1)

    def by_head(self, x: Tensor) -> Heads:
        """See Kernels."""
        return integers.by_head(x)

    def squares(self, x: Tensor) -> Tensor:
        """See Kernels."""
        return sums.squares(x)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See Kernels."""
        return norms.moments(x)

    def gated_silu(self, x: Tensor) -> Tensor:
        """See Kernels."""
        gate, up = x.float().chunk(2, dim=1)
        return functions.half(functions.silu(gate) * up)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        """See Kernels."""
        return attention.attend(q, k, v, how)

    def attend_int8(self, q: Tensor, k: Tensor, v: Tensor, how: Scores, v_scale: float) -> Tensor:
        """See Kernels."""
        return attention.attend_int8(q, k, v, how, v_scale)
