"""Matmuls by weight type (docs/numbers.md, 3.3 and 6.2 to 6.5), before bias and FP16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from lora_host.segments import segment_bounds
from lora_sdk.prefill.exact.integers import by_row, by_scale
from lora_sdk.prefill.exact.sums import joined_segments, products


class Products(Protocol):
    """The sums of a matmul on a device."""

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """segsum of FP16 x [rows, K] and w [K, N]: FP32."""

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """Exact sums of int8 x [rows, K] and w [K, N], rounded to FP32."""

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """`total` of 6.3: int8 x [rows, K], w [K, N] = q4 - z, scales FP16 [K/group, N]: FP32."""


class TorchProducts:
    """The reference: plain torch operations."""

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products."""
        return products(x, w)

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """See Products. FP64 holds every sum exactly."""
        return (x.double() @ w.double()).float()

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """See Products. Sums of a part are below 2^18: exact in FP32 in any order."""
        sums = []
        for parts in group_parts(len(w), group):
            total = torch.zeros((len(x), w.shape[1]), dtype=torch.float32, device=x.device)
            for start, stop in parts:
                part = x[:, start:stop].float() @ w[start:stop].float()
                part = part * scales[start // group].float()
                total = total + part
            sums.append(total)
        return joined_segments(len(w), torch.stack(sums))


def group_parts(k: int, group: int) -> Iterator[list[tuple[int, int]]]:
    """The parts of the groups in each segment of K that is not empty."""
    for start, stop in segment_bounds(k):
        cuts = sorted({start, stop, *range(-(-start // group) * group, stop, group)})
        if start < stop:
            yield list(pairwise(cuts))


class Matrix(Protocol):
    """The weights of a matmul, all outputs side by side."""

    def product(self, x: Tensor, sums: Products) -> Tensor:
        """What bias and adapters are added to: FP32 [rows, N] of FP16 x [rows, K]."""


@dataclass(frozen=True)
class HalfMatrix:
    """FP16 [K, N]."""

    weights: Tensor
    order: Tensor | None = None

    def product(self, x: Tensor, sums: Products) -> Tensor:
        """See Matrix."""
        return sums.floats(_ordered(x, self.order), self.weights)


@dataclass(frozen=True)
class Scale:
    """The input's static scale `x`, or None for one by row."""

    x: float | None

    def quantized(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """int8 x, and the rows' scales where each has its own."""
        if self.x is None:
            return by_row(x)
        return by_scale(x, self.x), None


@dataclass(frozen=True)
class Int8Matrix:
    """int8 [K, N] with FP32 scales [N], the static scale of the input in them."""

    weights: Tensor
    scales: Tensor
    scale: Scale

    def product(self, x: Tensor, sums: Products) -> Tensor:
        """See Matrix."""
        x8, own = self.scale.quantized(x)
        v = sums.bytes(x8, self.weights) * self.scales
        return v if own is None else v * own


@dataclass(frozen=True)
class Int4Matrix:
    """q4 - z as int8 [K, N] with FP16 scales [K/group, N]."""

    weights: Tensor
    scales: Tensor
    group: int
    scale: Scale
    order: Tensor | None = None

    def product(self, x: Tensor, sums: Products) -> Tensor:
        """See Matrix."""
        x8, own = self.scale.quantized(x)
        total = sums.groups(_ordered(x8, self.order), self.weights, self.scales, self.group)
        return total * (self.scale.x if own is None else own)


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x[:, order]
