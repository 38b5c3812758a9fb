"""Sums along K in the contract's order (docs/numbers.md, 2) in plain torch operations.

Operands are FP16 values. Their products are exact in FP32, so `addcmul_` gives the same bits
whether it is fused or not. Every other product and sum of this package is an operation of its
own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from lora_host.segments import segment_bounds

Part = TypeVar("Part")
CPU_ELEMENTS = 1 << 17  # of a block of sums: they stay in a core's cache
GPU_ELEMENTS = 1 << 25


def block_elements(device: torch.device) -> int:
    """How many sums are formed at once on a device."""
    return CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS


def tree(parts: Sequence[Part], add: Callable[[Part, Part], Part]) -> Part:
    """((0+1)+(2+3))+((4+5)+(6+7)) of the segments that are not empty; `add` meets None for none."""
    level = list(parts)
    while len(level) > 1:
        level = [add(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def joined_segments(k: int, filled: Tensor) -> Tensor:
    """The tree over the sums of the segments of K = `k` that are not empty, along dimension 0."""
    found = iter(filled)
    parts = [next(found) if start < stop else None for start, stop in segment_bounds(k)]
    return tree(parts, _plus)


def segment_columns(values: Tensor) -> Tensor:
    """[.., K] in FP32 as [longest segment, segments, ..]: what is added one after another, of all
    segments that are not empty at once. Shorter ones end with +0."""
    k = values.shape[-1]
    bounds = [(start, stop) for start, stop in segment_bounds(k) if start < stop]
    longest = max(stop - start for start, stop in bounds)
    shape = (longest, len(bounds), *values.shape[:-1])
    columns = torch.zeros(shape, dtype=torch.float32, device=values.device)
    for index, (start, stop) in enumerate(bounds):
        columns[: stop - start, index] = values[..., start:stop].movedim(-1, 0).float()
    return columns


def products(x: Tensor, w: Tensor) -> Tensor:
    """segsum(K, x[k]*w[k][n]) of FP16 values x [.., R, K] and w [.., K, N]: FP32 [.., R, N]."""
    k, count = w.shape[-2:]
    left = segment_columns(x)[..., None]
    rows = left.numel() // left.shape[0]
    width = max(8, block_elements(x.device) // rows)
    found = [_products(left, w[..., start : start + width], k) for start in range(0, count, width)]
    return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def _products(left: Tensor, w: Tensor, k: int) -> Tensor:
    right = segment_columns(w.transpose(-1, -2))[..., None, :]
    shape = torch.broadcast_shapes(left.shape[1:], right.shape[1:])
    total = torch.zeros(shape, dtype=torch.float32, device=w.device)
    for a, b in zip(left, right, strict=True):
        total.addcmul_(a, b)
    return joined_segments(k, total)


def squares(x: Tensor) -> Tensor:
    """segsum(K, x[k]*x[k]) of FP16 values [.., K]: FP32 [..]."""
    columns = segment_columns(x)
    total = torch.zeros_like(columns[0])
    for column in columns:
        total.addcmul_(column, column)
    return joined_segments(x.shape[-1], total)
