"""Attention of one sequence's rows over its K and V (docs/numbers.md, 3.8 and 6.6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lora_host import abi
from lora_prefill.exact.functions import divided, exp, half, soft_cap
from lora_prefill.exact.sums import block_elements, products

TILE = abi.TILE_POSITIONS
CHUNK = abi.CHUNK_POSITIONS
HIDDEN = float("-inf")


@dataclass(frozen=True)
class Scores:
    """What a layer does with q.k: times `scale`, softly bounded by `cap` (0: not), plus `bias`
    [heads, rows, positions]; `window`: positions that a row sees, 0 for all. `first`: the position
    of row 0."""

    scale: float
    first: int
    cap: float = 0.0
    window: int = 0
    bias: Tensor | None = None


def attend(q: Tensor, k: Tensor, v: Tensor, how: Scores) -> Tensor:
    """FP16 [rows, heads*head_dim]; q [rows, heads, head_dim], k and v [KV heads, positions,
    head_dim] in FP16, whole tiles of positions."""
    grouped = _grouped(q, len(k))
    sums = products(grouped.reshape(len(k), -1, q.shape[2]), k.transpose(1, 2))
    scores = finished(sums, q, how)
    e = half(exp(scores - scores.amax(dim=3, keepdim=True)))
    below, above = torch.zeros((), device=q.device), torch.zeros((), device=q.device)
    for start in range(0, v.shape[1], CHUNK):
        part_e, part_v = _chunk_sums(e[..., start : start + CHUNK], v[:, start : start + CHUNK])
        below, above = below + part_e, above + part_v
    return _rows(half(divided(above, below[..., None])))


def attend_int8(q: Tensor, k: Tensor, v: Tensor, how: Scores, v_scale: float) -> Tensor:
    """The same of int8 q, k and v; FP64 holds every sum exactly."""
    grouped = _grouped(q, len(k)).reshape(len(k), -1, q.shape[2])
    sums = (grouped.double() @ k.double().transpose(1, 2)).float()
    scores = finished(sums, q, how)
    e = torch.round(exp(scores - scores.amax(dim=3, keepdim=True)) * 127.0).double()
    above = (e.flatten(1, 2) @ v.double()).float().reshape(*e.shape[:3], -1)
    return _rows(half(divided(above, e.sum(dim=3).float()[..., None]) * v_scale))


def _grouped(q: Tensor, kv_heads: int) -> Tensor:
    """[KV heads, heads of each, rows, head_dim]."""
    rows, heads, head_dim = q.shape
    return q.transpose(0, 1).reshape(kv_heads, heads // kv_heads, rows, head_dim)


def _rows(y: Tensor) -> Tensor:
    return y.flatten(0, 1).transpose(0, 1).flatten(1)


def finished(sums: Tensor, q: Tensor, how: Scores) -> Tensor:
    """The scores [KV heads, heads of each, rows, positions], what a row does not see -infinity."""
    rows, kv_heads, positions = len(q), sums.shape[0], sums.shape[2]
    scores = sums * how.scale
    if how.cap:
        scores = soft_cap(scores, how.cap)
    scores = scores.reshape(kv_heads, -1, rows, positions)
    if how.bias is not None:
        scores = scores + how.bias.reshape(scores.shape)
    position = torch.arange(positions, device=q.device)
    own = torch.arange(how.first, how.first + rows, device=q.device)[:, None]
    seen = position <= own
    if how.window:
        seen &= position > own - how.window
    return torch.where(seen, scores, torch.full_like(scores, HIDDEN))


def _chunk_sums(e: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """E_c and A_c: sums in each tile, then over tiles. What a row does not see has e = +0."""
    kv_heads, positions, head_dim = v.shape
    tiles = positions // TILE
    e = e.float().reshape(*e.shape[:3], tiles, TILE)
    v = v.float().reshape(kv_heads, 1, 1, tiles, TILE, head_dim)
    below = torch.zeros(e.shape[:3], dtype=torch.float32, device=v.device)
    above = torch.zeros((*e.shape[:3], head_dim), dtype=torch.float32, device=v.device)
    step = max(1, block_elements(v.device) // above.numel())
    for first in range(0, tiles, step):
        chosen = slice(first, min(tiles, first + step))
        tile_e, tile_v = _tile_sums(e[:, :, :, chosen], v[:, :, :, chosen])
        for tile in range(tile_e.shape[3]):
            below = below + tile_e[..., tile]
            above = above + tile_v[..., tile, :]
    return below, above


def _tile_sums(e: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """e_t and a_t; products of FP16 values are exact."""
    tile_e = torch.zeros(e.shape[:4], dtype=torch.float32, device=v.device)
    tile_v = torch.zeros((*e.shape[:4], v.shape[5]), dtype=torch.float32, device=v.device)
    for lane in range(TILE):
        tile_e = tile_e + e[..., lane]
        tile_v.addcmul_(e[..., lane, None], v[..., lane, :])
    return tile_e, tile_v
