"""Matmuls by weight type (docs/numbers.md, 3.3 and 6.2 to 6.5), before bias and FP16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from lora_host.segments import segment_bounds
from lora_prefill.exact.integers import inverse_scale, quantized, row_scales
from lora_prefill.exact.sums import joined_segments, products


class Products(Protocol):
    """What a matmul asks of a device."""

    def quantized(self, x: Tensor, factor: Tensor | float) -> Tensor:
        """6.1 of FP16 x [rows, K] by each row's factor [rows, 1], or one for all: int8."""

    def floats(self, x: Tensor, w: Tensor) -> Tensor:
        """segsum of FP16 x [rows, K] and w [K, N]: FP32."""

    def bytes(self, x: Tensor, w: Tensor) -> Tensor:
        """Exact sums of int8 x [rows, K] and w [K, N], rounded to FP32."""

    def groups(self, x: Tensor, w: Tensor, scales: Tensor, group: int) -> Tensor:
        """`total` of 6.3: int8 x [rows, K], w [K, N] = q4 - z, scales FP16 [K/group, N]: FP32."""


class TorchProducts:
    """The reference: plain torch operations."""

    def quantized(self, x: Tensor, factor: Tensor | float) -> Tensor:
        """See Products."""
        return quantized(x, factor)

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


@dataclass(frozen=True)
class Product:
    """What bias and adapters are added to, before it is scaled: FP32 [rows, N] is times `columns`
    [N], where it has such, then times `factor`, one number or [rows, 1]."""

    total: Tensor
    columns: Tensor | None = None
    factor: Tensor | float = 1.0

    def scaled(self) -> Tensor:
        """FP32 [rows, N]."""
        v = self.total if self.columns is None else self.total * self.columns
        return v * self.factor  # times 1 changes no bit


class Matrix(Protocol):
    """The weights of a matmul, all outputs side by side."""

    def product(self, x: Tensor, sums: Products) -> Product:
        """Of FP16 x [rows, K]."""


@dataclass(frozen=True)
class HalfMatrix:
    """FP16 [K, N]."""

    weights: Tensor
    order: Tensor | None = None

    def product(self, x: Tensor, sums: Products) -> Product:
        """See Matrix."""
        return Product(sums.floats(_ordered(x, self.order), self.weights))


@dataclass(frozen=True)
class Scale:
    """The input's static scale `x`, or None for one by row."""

    x: float | None

    def quantized(self, x: Tensor, sums: Products) -> tuple[Tensor, Tensor | None]:
        """int8 x, and the rows' scales where each has its own."""
        if self.x is not None:
            return sums.quantized(x, inverse_scale(self.x)), None
        factors, scales = row_scales(x)
        return sums.quantized(x, factors), scales


@dataclass(frozen=True)
class Int8Matrix:
    """int8 [K, N] with FP32 scales [N], the static scale of the input in them."""

    weights: Tensor
    scales: Tensor
    scale: Scale

    def product(self, x: Tensor, sums: Products) -> Product:
        """See Matrix."""
        x8, own = self.scale.quantized(x, sums)
        total = sums.bytes(x8, self.weights)
        return Product(total, self.scales, 1.0 if own is None else own)


@dataclass(frozen=True)
class Int4Matrix:
    """q4 - z as int8 [K, N] with FP16 scales [K/group, N]."""

    weights: Tensor
    scales: Tensor
    group: int
    scale: Scale
    order: Tensor | None = None

    def product(self, x: Tensor, sums: Products) -> Product:
        """See Matrix."""
        x8, own = self.scale.quantized(x, sums)
        total = sums.groups(_ordered(x8, self.order), self.weights, self.scales, self.group)
        if own is not None:
            return Product(total, None, own)
        assert self.scale.x is not None
        return Product(total, None, self.scale.x)


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x[:, order]
