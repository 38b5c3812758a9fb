"""LayerNorm and RMSNorm (docs/numbers.md, 3.4, 3.5 and 3.12), before FP16 rounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lora_host.segments import segment_bounds
from lora_prefill.exact.functions import divided, inverse, number, root
from lora_prefill.exact.sums import segment_columns, tree


class _Part(NamedTuple):
    """T and Q of `columns` columns, FP32 [rows]."""

    total: Tensor
    square: Tensor
    columns: int


def layer_norm(
    x: Tensor,
    moments: tuple[Tensor, Tensor],
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
) -> Tensor:
    """Of FP16 rows [rows, d] with these T and Q: FP32. A gamma that is absent is 1, a beta +0 and
    added."""
    total, square = moments
    mean = divided(total, float(x.shape[1]))
    r = _reciprocal_root(square, x.shape[1], eps, 1.0)
    y = (x.float() - mean[:, None]) * r[:, None]
    y = y if gamma is None else y * gamma
    return y + (number(0.0, x.device) if beta is None else beta)


def rms_norm(
    x: Tensor, square: Tensor, width: int, gamma: Tensor | None, eps: float, above: float = 1.0
) -> Tensor:
    """Of FP16 rows [.., d] with these sums of squares [..] of `width` columns: FP32; `above` is the
    numerator of r."""
    y = x.float() * _reciprocal_root(square, width, eps, above)[..., None]
    return y if gamma is None else y * gamma


def _reciprocal_root(square: Tensor, width: int, eps: float, above: float) -> Tensor:
    spread = divided(square, float(width)) + float(np.float32(eps))
    return inverse(root(spread), above)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """T and Q of FP16 rows [rows, d]: FP32 [rows]."""
    found = tree(_moments(x), _merge)
    assert found is not None  # a row has columns
    return found.total, found.square


def _moments(x: Tensor) -> list[_Part | None]:
    """T and Q of each segment, None where it is empty."""
    columns, bounds = segment_columns(x), segment_bounds(x.shape[1])
    counts = [stop - start for start, stop in bounds if start < stop]
    total = torch.zeros_like(columns[0])
    for column in columns:
        total = total + column
    sizes = torch.tensor(counts, device=x.device)
    mean = divided(total, sizes.float()[:, None])
    square = torch.zeros_like(total)
    for index, column in enumerate(columns):
        off = column - mean
        off = torch.where((index < sizes)[:, None], off, torch.zeros_like(off))
        square = square + off * off
    found = (_Part(*each) for each in zip(total, square, counts, strict=True))
    return [next(found) if start < stop else None for start, stop in bounds]


def _merge(a: _Part | None, b: _Part | None) -> _Part | None:
    if a is None or b is None:
        return b if a is None else a
    delta = divided(b.total, float(b.columns)) - divided(a.total, float(a.columns))
    weight = np.float32(a.columns * b.columns) / np.float32(a.columns + b.columns)
    square = (a.square + b.square) + (delta * delta) * float(weight)
    return _Part(a.total + b.total, square, a.columns + b.columns)
