"""Attention (docs/numbers.md, 3.8 and 6.6) by CUDA kernels: scores, weights, weighted values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from lora_prefill.exact.attention import Scores, finished
from lora_prefill.exact.cuda.launcher import Launcher
from lora_prefill.exact.functions import divided, half

SCORES = 1 << 27  # at once: bounds memory
ROWS, COLUMNS, VALUE_ROWS = 128, 128, 64  # of a block


@dataclass(frozen=True)
class Sizes:
    """Of q [rows, heads, size] and k [KV heads, positions, size]."""

    rows: int
    heads: int
    size: int
    kv_heads: int
    positions: int

    @property
    def of_each(self) -> int:
        """Heads of a KV head."""
        return self.heads // self.kv_heads


class Attending:
    """Attention by a Launcher; arguments and results as in attention.py."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def halves(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        """See attention.attend."""
        k, v = _by_head(k), _by_head(v)
        return torch.cat([self._halves(part, k, v, here) for part, here in _pieces(q, k, how)])

    def bytes(self, q: Tensor, k: Tensor, v: Tensor, how: Scores, v_scale: float) -> Tensor:
        """See attention.attend_int8."""
        tail = -q.shape[2] % 32
        q, k = pad(q, (0, tail)), _by_head(pad(k, (0, tail)))
        turned = v.transpose(1, 2).contiguous()
        found = [self._bytes(part, k, turned, here) for part, here in _pieces(q, k, how)]
        return half(torch.cat(found) * v_scale)

    def _halves(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        q, of = _by_row(q), _sizes(q, k)
        scores = _empty(q, torch.float32, of.heads, of.rows, of.positions)
        grid = (-(-of.positions // COLUMNS), -(-of.rows // ROWS), of.heads)
        self._launcher.launch(
            "half_scores", grid, 256, q, k, scores, of.rows, q.stride(0), of.size, of.positions,
            k.stride(0), of.of_each, how.first,
        )  # fmt: skip
        e, sums = self._weights("attention_weights", torch.float16, scores, q, how, of)
        y = _empty(q, torch.float16, of.rows, of.heads * of.size)
        grid = (-(-of.size // COLUMNS), -(-of.rows // VALUE_ROWS), of.heads)
        self._launcher.launch(
            "weighted_values", grid, 256, e, v, sums, y, of.rows, of.size, of.positions,
            v.stride(0), of.of_each, how.first,
        )  # fmt: skip
        return y

    def _bytes(self, q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
        """A/E in FP32 [rows, heads*head_dim]; v is [KV heads, head_dim, positions]."""
        q, of = _by_row(q), _sizes(q, k)
        scores = _empty(q, torch.float32, of.heads, of.rows, of.positions)
        grid = (-(-of.positions // COLUMNS), -(-of.rows // ROWS), of.heads)
        self._launcher.launch(
            "byte_heads", grid, 256, q, k, scores, of.rows, of.size, of.positions,
            q.stride(0), q.stride(1), k.stride(0), of.of_each, 1, how.first,
        )  # fmt: skip
        e, sums = self._weights("attention_weights_int8", torch.int8, scores, q, how, of)
        above = _empty(q, torch.float32, of.heads, of.rows, v.shape[1])
        grid = (-(-v.shape[1] // COLUMNS), -(-of.rows // ROWS), of.heads)
        self._launcher.launch(
            "byte_heads", grid, 256, e, v, above, of.rows, of.positions, v.shape[1],
            e.stride(1), e.stride(0), v.stride(0), of.of_each, 0, how.first,
        )  # fmt: skip
        return divided(above, sums[..., None]).transpose(0, 1).flatten(1)

    def _weights(
        self, name: str, kind: torch.dtype, scores: Tensor, q: Tensor, how: Scores, of: Sizes
    ) -> tuple[Tensor, Tensor]:
        """e [heads, rows, positions], and E [heads, rows] in FP32."""
        scale = how.scale
        if how.cap or how.bias is not None:
            grouped = scores.reshape(of.kv_heads, -1, of.positions)
            scores, scale = finished(grouped, q, how).contiguous(), 1.0
        e = _empty(q, kind, of.heads, of.rows, of.positions)
        sums = _empty(q, torch.float32, of.heads, of.rows)
        self._launcher.launch(
            name, (of.rows, of.heads, 1), 256, scores, e, sums, of.rows, of.positions, how.first,
            how.window, float(scale),
        )  # fmt: skip
        return e, sums


def _pieces(q: Tensor, k: Tensor, how: Scores) -> list[tuple[Tensor, Scores]]:
    """Rows in pieces of which all scores fit."""
    step = max(ROWS, SCORES // (q.shape[1] * k.shape[1]) // ROWS * ROWS)
    found = []
    for start in range(0, len(q), step):
        rows = slice(start, start + step)
        bias = None if how.bias is None else how.bias[:, rows]
        found.append((q[rows], replace(how, first=how.first + start, bias=bias)))
    return found


def _sizes(q: Tensor, k: Tensor) -> Sizes:
    return Sizes(*q.shape, *k.shape[:2])


def _by_row(q: Tensor) -> Tensor:
    """With the heads of a row side by side; rows may lie apart."""
    return q if q.stride()[1:] == (q.shape[2], 1) else q.contiguous()


def _by_head(k: Tensor) -> Tensor:
    """With the positions of a head side by side; heads may lie apart."""
    return k if k.stride()[1:] == (k.shape[2], 1) else k.contiguous()


def _empty(like: Tensor, kind: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=kind, device=like.device)
