"""What exact prefill asks of a device beyond operations on single values: sums in the contract's
order, and what is made of them."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from lora_sdk.prefill.exact import attention, functions, norms, sums
from lora_sdk.prefill.exact.attention import Scores
from lora_sdk.prefill.exact.matrices import Products, TorchProducts


class Kernels(Products, Protocol):
    """All of them."""

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
