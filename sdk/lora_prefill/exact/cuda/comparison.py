"""The kernels beside plain torch operations, byte for byte, which opening runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lora_host.errors import RequestError
from lora_prefill.exact.attention import CHUNK, Scores
from lora_prefill.exact.kernels import Kernels, TorchKernels
from lora_prefill.exact.matrices import Product

SHAPES = (
    (1, 32, 8, 32),
    (5, 70, 33, 32),
    (37, 288, 70, 96),
    (65, 1408, 130, 128),
    (150, 736, 140, 32),
)
"""Rows, K, columns and group (of K in whole groups) of the comparison."""
ATTENTION = ((3, 2, 2, 32, 0, 0), (140, 4, 2, 40, 13, 0), (130, 2, 1, 144, 60, 50))
"""Rows, heads, KV heads, head_dim, the first row's position and the window."""
PARTS = (1, 2, 4, 8)
Found = Iterator[tuple[str, Tensor, Tensor]]


def compare(made: Callable[[int], Kernels], device: torch.device) -> None:
    """RequestError names a kernel that gives other bytes than plain torch operations. `made`: the
    kernels with so many blocks for an output's segments."""
    plain = TorchKernels()
    for parts in PARTS:
        _check(_products(made(parts), plain, device), device)
    for kernels in (_rows, _elements, _attention, _chunks):
        _check(kernels(made(1), plain, device), device)


def _check(compared: Found, device: torch.device) -> None:
    for name, got, want in compared:
        if got.cpu().numpy().tobytes() != want.cpu().numpy().tobytes():
            raise RequestError(
                f"prefill: the CUDA kernel of {name} gives other bytes on {device} than plain "
                f"operations; use 'torch:{device}', and report it"
            )


@dataclass
class _Draw:
    """Random values on a device."""

    device: torch.device
    source: torch.Generator

    def half(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.source).to(torch.float16).to(self.device)

    def int8(self, *shape: int, least: int = -127) -> Tensor:
        drawn = torch.randint(least, 128, shape, generator=self.source, dtype=torch.int8)
        return drawn.to(self.device)


def _draw(device: torch.device) -> _Draw:
    return _Draw(device, torch.Generator().manual_seed(5))


def _products(found: Kernels, plain: Kernels, device: torch.device) -> Found:
    draw = _draw(device)
    for rows, k, columns, group in SHAPES:
        what = f"{rows} rows, K {k}"
        x, w = draw.half(rows, k), draw.half(k, columns)
        yield f"FP16 products, {what}", found.floats(x, w), plain.floats(x, w)
        x8, w8 = draw.int8(rows, k), draw.int8(columns, k, least=-128).t()
        yield f"INT8 products, {what}", found.bytes(x8, w8), plain.bytes(x8, w8)
        if k % group == 0:
            w4 = torch.div(w8, 9, rounding_mode="trunc")  # -14 .. 14
            given = (x8, w4, draw.half(k // group, columns).abs(), group)
            yield f"products in groups, {what}", found.groups(*given), plain.groups(*given)


def _rows(found: Kernels, plain: Kernels, device: torch.device) -> Found:
    draw = _draw(device)
    for rows, k, _, _ in SHAPES:
        x = draw.half(rows, k)
        yield f"squares, K {k}", found.squares(x), plain.squares(x)
        for got, want in zip(found.moments(x), plain.moments(x), strict=True):
            yield f"moments, K {k}", got, want
        wide = x * 16  # exp overflows in places
        yield f"gated silu, {k // 2} columns", found.gated_silu(wide), plain.gated_silu(wide)


def _elements(found: Kernels, plain: Kernels, device: torch.device) -> Found:
    draw = _draw(device)
    for rows, heads, size in ((1, 1, 32), (5, 4, 40), (33, 9, 128)):
        x = draw.half(rows, (heads + 1) * size)
        x[0, 0], x[-1, -1] = 60000.0, -0.0
        gamma, row = draw.half(x.shape[1]).float(), draw.half(rows, 1).float().abs()
        for given in ((gamma, 1e-5, 1.0), (None, 1e-6, 2.0**-6)):
            yield "RMSNorm", found.rms_norm(x, *given), plain.rms_norm(x, *given)
        yield (
            "rotation",
            *(one.rotated(x, _angles(rows, size, device), heads * size) for one in (found, plain)),
        )
        part = x[:, size:]
        for factor in (row * 40, 31.7):
            yield "quantizing", found.quantized(part, factor), plain.quantized(part, factor)
        cut = part.unflatten(1, (-1, size))
        for got, want in zip(found.by_head(cut), plain.by_head(cut), strict=True):
            yield "INT8 heads", got, want
        total = draw.half(rows, x.shape[1]).float() * 3000
        for product, bias in (
            (Product(total, gamma, row), gamma),
            (Product(total, None, 0.37), None),
        ):
            got, want = found.rounded(product, bias), plain.rounded(product, bias)
            yield "rounded products", got, want


def _angles(rows: int, size: int, device: torch.device) -> Tensor:
    """Cosines and sines [rows, 2, size/2]."""
    angles = torch.arange(rows * size // 2, dtype=torch.float64).reshape(rows, -1)
    return torch.stack([angles.cos(), angles.sin()], dim=1).float().to(device)


def _attention(found: Kernels, plain: Kernels, device: torch.device) -> Found:
    draw = _draw(device)
    for rows, heads, kv_heads, size, first, window in ATTENTION:
        positions = -(-(first + rows) // 32) * 32
        bias = draw.half(heads, rows, positions).float()
        kv = (kv_heads, positions, size)
        for cap, added in ((0.0, None), (5.0, bias)):
            how = Scores(0.25, first, cap, window, added)
            given = (draw.half(rows, heads, size), draw.half(*kv), draw.half(*kv), how)
            yield f"attention, {rows} rows", found.attend(*given), plain.attend(*given)
            how = Scores(2.0**-15, first, cap, window, added)
            eight = (draw.int8(rows, heads, size), draw.int8(*kv), draw.int8(*kv), how, 0.03)
            got, want = found.attend_int8(*eight), plain.attend_int8(*eight)
            yield f"INT8 attention, {rows} rows", got, want


def _chunks(found: Kernels, plain: Kernels, device: torch.device) -> Found:
    """Beyond 4096 positions. All weights are equal, and V is such that a sum which does not begin
    anew with the second chunk keeps what that chunk loses."""
    rows, first, size = 5, CHUNK + 104, 40
    positions = -(-(first + rows) // 32) * 32
    v = torch.zeros((1, positions, size), dtype=torch.float16)
    v[:, CHUNK - 64 : CHUNK], v[:, CHUNK : CHUNK + 64], v[:, CHUNK + 64 :] = (
        65504.0,
        -65504.0,
        0.0035,
    )
    draw = _draw(device)
    q, how = torch.zeros((rows, 2, size), dtype=torch.float16, device=device), Scores(0.25, first)
    given = (q, draw.half(1, positions, size), v.to(device), how)
    yield "attention over two chunks", found.attend(*given), plain.attend(*given)
    how = Scores(2.0**-15, first, window=CHUNK + 24)
    eight = (draw.int8(rows, 2, size), draw.int8(1, positions, size), draw.int8(1, positions, size))
    got, want = (one.attend_int8(*eight, how, 0.03) for one in (found, plain))
    yield "INT8 attention over two chunks", got, want
